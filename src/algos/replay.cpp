// SPDX-License-Identifier: Apache-2.0
#include "algos/replay.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/files.h"

namespace apus {
namespace {

constexpr size_t kLongestRollout = 64 << 20;
constexpr const char* kAnswerColumn = "answer";

std::vector<int32_t> token_ids_of(const Json& row, const char* name) {
  require(row.contains(name) && row[name].is_array() && !row[name].empty(), Fault::Data, "key '", name,
          "' must be a list of token ids, and not empty");
  std::vector<int32_t> out;
  for (const Json& id : row[name]) {
    require(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < INT32_MAX, Fault::Data, "key '",
            name, "': ", id.dump(), " is no token id");
    out.push_back(id.get<int32_t>());
  }
  return out;
}

std::vector<uint8_t> mask_of(const Json& mask, size_t tokens) {
  require(mask.is_array() && mask.size() == tokens, Fault::Data, "key 'loss_mask' must hold 1 or 0 for each of the ",
          tokens, " tokens of completion_ids");
  std::vector<uint8_t> out;
  for (const Json& value : mask) {
    require(value == 0 || value == 1, Fault::Data, "key 'loss_mask': ", value.dump(), " is neither 0 nor 1");
    out.push_back(value == 1);
  }
  require(std::find(out.begin(), out.end(), 1) != out.end(), Fault::Data,
          "key 'loss_mask': no token is the policy's, and nothing could be learnt");
  return out;
}

Answer answer_of(const Json& row, std::map<std::string, int64_t>& groups) {
  require(row.is_object(), Fault::Data, "an object is wanted");
  for (const char* name : {"group", "reward"})
    require(row.contains(name) && !row[name].is_null(), Fault::Data, "key '", name, "' is missing");
  require(row["reward"].is_number() && std::isfinite(row["reward"].get<double>()), Fault::Data,
          "key 'reward': ", row["reward"].dump(), " is no number");
  Answer answer;
  answer.prompt = token_ids_of(row, "prompt_ids"), answer.ids = token_ids_of(row, "completion_ids");
  answer.reward = row["reward"].get<double>();
  answer.group = groups.emplace(row["group"].dump(), static_cast<int64_t>(groups.size())).first->second;
  if (row.contains("loss_mask") && !row["loss_mask"].is_null())
    answer.own = mask_of(row["loss_mask"], answer.ids.size());
  if (!row.contains("logprobs") || row["logprobs"].is_null()) return answer;
  const Json& logprobs = row["logprobs"];
  require(logprobs.is_array() && logprobs.size() == answer.ids.size(), Fault::Data,
          "key 'logprobs' must hold one number "
          "for each of the ",
          answer.ids.size(), " tokens of completion_ids");
  for (const Json& value : logprobs) {
    require(value.is_number() && value.get<double>() <= 1e-4, Fault::Data, "key 'logprobs': ", value.dump(),
            " is no logarithm of a probability");
    answer.engine_logprobs.push_back(value.get<float>());
  }
  return answer;
}

// A further conversation of an answer.
void join(Answer& whole, Answer one) {
  require(one.reward == whole.reward, Fault::Data, "key 'reward': ", one.reward,
          ", and another row of its 'answer' has ", whole.reward);
  require(one.engine_logprobs.empty() == whole.engine_logprobs.empty(), Fault::Data,
          "key 'logprobs': all rows of an 'answer' have them, or none");
  if (one.own.empty()) one.own.assign(one.ids.size(), 1);
  whole.beside.push_back({.prompt = std::move(one.prompt),
                          .ids = std::move(one.ids),
                          .own = std::move(one.own),
                          .logprobs = std::move(one.engine_logprobs)});
}

}  // namespace

std::vector<Answer> read_rollouts(const std::filesystem::path& file, size_t least) {
  std::ifstream in(file);
  require(in.good(), Fault::Usage, "--replay_rollouts ", file.string(), " cannot be read");
  std::vector<Answer> answers;
  std::map<std::string, int64_t> groups;
  std::map<std::string, size_t> wholes;  // of several rows
  std::string faults;
  int64_t number = 0, bad = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      require(line.size() <= kLongestRollout, Fault::Data, "more than ", kLongestRollout, " bytes");
      const Json row = parse_json(line, "the row");
      Answer answer = answer_of(row, groups);
      if (row.contains("answer")) {
        const auto [at, first] = wholes.emplace(str(answer.group, " ", row["answer"].dump()), answers.size());
        if (!first) {
          join(answers[at->second], std::move(answer));
          continue;
        }
      }
      answers.push_back(std::move(answer));
    } catch (const Error& error) {
      if (++bad <= 10) faults += str("\n  line ", number, ": ", error.what());
    }
  }
  require(bad == 0, Fault::Data, file.string(), ": ", bad, " rows cannot be used:", faults);
  require(!answers.empty(), Fault::Data, file.string(), " holds no rows");
  std::stable_sort(answers.begin(), answers.end(), [](const Answer& a, const Answer& b) { return a.group < b.group; });
  for (const auto& [first, end] : groups_of(answers)) {
    std::string name;
    for (const auto& [text, group] : groups)
      if (group == answers[first].group) name = text;
    require(end - first >= least, Fault::Data, file.string(), ": group ", name,
            " has one answer, which nothing can be compared with: leave it out, or give it another answer");
  }
  const auto known = static_cast<size_t>(
      std::count_if(answers.begin(), answers.end(), [](const Answer& a) { return !a.engine_logprobs.empty(); }));
  require(known == 0 || known == answers.size(), Fault::Data, file.string(), ": ", known, " of ", answers.size(),
          " rows have logprobs: give them for all, or for none");
  return answers;
}

void append_rollouts(const std::filesystem::path& file, const std::vector<Answer>& answers, const std::string& round) {
  std::ofstream out(file, std::ios::app);
  int64_t number = 0;
  for (const Answer& answer : answers) {
    require(answer.media.empty(), Fault::Usage,
            "--dump_rollouts keeps answers to questions of text alone, and one has images, videos or sounds: leave it "
            "away");
    const Conversations all = conversations_of({answer});
    for (const Answer& one : all.each) {
      Json row = {{"group", str(round, ".", answer.group)},
                  {"prompt_ids", one.prompt},
                  {"completion_ids", one.ids},
                  {"reward", answer.reward},
                  {"logprobs", one.engine_logprobs}};
      if (!one.own.empty()) row["loss_mask"] = one.own;
      if (all.each.size() > 1) row["answer"] = number;
      out << json_text(row) << "\n";
    }
    ++number;
  }
  out.flush();
  require(out.good(), Fault::Io, "cannot write ", file.string(), " (--dump_rollouts)");
}

ReplayedAnswers::ReplayedAnswers(const std::vector<Answer>& answers, int64_t batch, int64_t rank, int64_t ranks) {
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].group % ranks != rank) continue;
    Sample sample;
    sample.ids = answers[i].prompt, sample.trained.assign(sample.ids.size(), 0);
    sample.columns[kAnswerColumn] = static_cast<float>(i);
    if (batches_.empty() || static_cast<int64_t>(batches_.back().size()) == batch) batches_.emplace_back();
    batches_.back().push_back(std::move(sample));
  }
}

int64_t most_replayed_batches(const std::vector<Answer>& answers, int64_t batch, int64_t ranks) {
  int64_t most = 0;
  for (int64_t rank = 0; rank < ranks; ++rank)
    most = std::max(most, ReplayedAnswers(answers, batch, rank, ranks).size());
  return most;
}

std::optional<Samples> ReplayedAnswers::next() {
  return at_ < batches_.size() ? std::optional(batches_[at_++]) : std::nullopt;
}

AnswerRounds::Round answers_to(std::vector<Samples> micro_batches, const std::vector<Answer>& replayed,
                               AnswerRounds* rounds, Actors& actors, bool training) {
  Samples questions;
  for (Samples& samples : micro_batches)
    for (Sample& sample : samples) questions.push_back(std::move(sample));
  if (rounds) return rounds->ask(actors, questions, training);
  AnswerRounds::Round round;
  for (const Sample& sample : questions)
    round.answers.push_back(replayed[static_cast<size_t>(sample.columns.at(kAnswerColumn))]);
  return round;
}

}  // namespace apus
