// SPDX-License-Identifier: Apache-2.0
#include "algos/answers.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "algos/row_sharers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "data/rows/row.h"
#include "device/agree.h"
#include "environment/plugin.h"
#include "train/idle_pass.h"
#include "train/record/run_log.h"
#include "train/rollout.h"

namespace apus {

std::vector<std::pair<size_t, size_t>> groups_of(const std::vector<Answer>& answers) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t i = 0; i < answers.size(); ++i)
    if (i == 0 || answers[i].group != answers[i - 1].group)
      out.emplace_back(i, i + 1);
    else
      out.back().second = i + 1;
  return out;
}

bool has_spread(const std::vector<Answer>& answers, size_t first, size_t end) {
  return std::any_of(answers.begin() + static_cast<long>(first), answers.begin() + static_cast<long>(end),
                     [&](const Answer& a) { return a.reward != answers[first].reward; });
}

Sample sample_of(const Answer& answer, bool learnt, bool joins) {
  Sample sample;
  sample.ids = answer.prompt;
  sample.ids.insert(sample.ids.end(), answer.ids.begin(), answer.ids.end());
  sample.trained.assign(answer.prompt.size(), 0);
  for (size_t i = 0; i < answer.ids.size(); ++i) sample.trained.push_back(learnt && answer.says(i));
  sample.grouped = joins;
  sample.media = answer.media;
  return sample;
}

std::vector<float> answer_column(const Answer& answer, const std::vector<float>& of_tokens) {
  std::vector<float> column(answer.prompt.size() - 1, 0.0f);
  if (of_tokens.size() == answer.ids.size()) {
    column.insert(column.end(), of_tokens.begin(), of_tokens.end());
  } else {
    auto next = of_tokens.begin();
    for (size_t i = 0; i < answer.ids.size(); ++i) column.push_back(answer.says(i) ? *next++ : 0.0f);
  }
  column.push_back(0.0f);
  return column;
}

namespace {
// [[version, tokens], ...], as they stand one behind the other.
Json runs_of(const std::vector<int64_t>& versions) {
  Json runs = Json::array();
  for (size_t i = 0; i < versions.size(); ++i)
    if (i > 0 && versions[i] == versions[i - 1])
      runs.back()[1] = runs.back()[1].get<int64_t>() + 1;
    else
      runs.push_back({versions[i], 1});
  return runs;
}
}  // namespace

std::string completion_lines(const std::vector<Answer>& answers, const std::vector<std::string>& functions,
                             const Tokenizer& tokenizer, int64_t step) {
  std::string lines;
  for (const Answer& answer : answers) {
    Json line = {{"step", step}, {"prompt", tokenizer.decode(answer.prompt, false)}, {"completion", answer.text}};
    for (size_t f = 0; f < answer.rewards.size(); ++f)
      line[functions[f]] = std::isnan(answer.rewards[f]) ? Json() : Json(answer.rewards[f]);
    line["reward"] = answer.reward, line["tokens"] = answer.said(), line["truncated"] = answer.cut;
    line["versions"] = runs_of(answer.versions);
    if (!answer.turns.empty()) line["num_turns"] = answer.turns_taken(), line["trajectory"] = answer.trajectory;
    if (!answer.beside.empty()) line["num_conversations"] = 1 + answer.beside.size();
    lines += json_text(line) + "\n";
  }
  return lines;
}

void write_completions(const std::string& mine, const std::filesystem::path& dir, Comm* data_ranks) {
  std::string lines = mine;
  if (data_ranks && data_ranks->size() > 1) {
    lines.clear();
    for (const std::string& part : gather_text(mine, *data_ranks)) lines += part;
    if (data_ranks->rank() != 0) return;
  }
  const std::filesystem::path file = dir / kCompletionsFile;
  std::ofstream out(file, std::ios::app);
  out << lines << std::flush;
  require(out.good(), Fault::Io, "cannot write ", file.string(), " (--log_completions)");
}

namespace {

Json settings_for_plugins(const RoundOptions& o) {
  RewardOptions options = o.rewards;
  Json settings = OptionTable::of(options).json();
  settings["max_completion_length"] = options.max_completion_length;
  settings["num_generations"] = o.each, settings["max_turns"] = o.environment.max_turns;
  return settings;
}

}  // namespace

std::string texts_alone(const RolloutServerOptions& servers, bool dumps) {
  if (!servers.server_urls().empty())
    return "rollout servers (--vllm_server_base_url, --vllm_server_host) are sent the tokens of questions";
  return dumps ? "--dump_rollouts keeps questions as their tokens" : "";
}

AnswerRounds::AnswerRounds(RoundOptions options, const RunSetting& setting)
    : o_(std::move(options)),
      tokenizer_(setting.tokenizer),
      sampling_(setting.sampling),
      seed_(setting.seed),
      rank_(setting.rank),
      ranks_(setting.ranks),
      device_(setting.device),
      plugins_(plugins_of(o_.rewards, settings_for_plugins(o_), tokenizer_)),
      rewards_(o_.rewards, plugins_),
      names_(rewards_.names()),
      weights_(rewards_.weights()) {
  for (const std::string& model : o_.rewards.reward_model) names_.push_back(reward_model_name(model, names_));
  if (!o_.servers.stop_words.empty()) stop_ = {.tokenizer = tokenizer_, .texts = o_.servers.stop_words};
  if (o_.environment.several_turns()) {
    environment_ = make_environment(o_.environment, plugins_, {setting.chat, sampling_.stop_ids});
    names_.push_back(reward_model_name(environment_shown(o_.environment.environment_name()), names_));
    weights_.push_back(1);
  }
  require(
      sampling_.temperature > 0, Fault::Usage,
      "--temperature 0 gives the same answer to a question every time, and there is nothing to compare: give 0.9 or 1");
  sampling_.max_new_tokens = o_.rewards.max_completion_length;
  sampling_.top_logprobs = 0, sampling_.tempered_logprobs = true;
}

AnswerRounds::Part AnswerRounds::all_of(const Samples& questions, int64_t each) {
  return {.each = each, .first = 0, .end = questions.size() * static_cast<size_t>(each)};
}

AnswerRounds::Part AnswerRounds::mine_of(const Samples& questions, int64_t each) const {
  Part part = all_of(questions, each);
  const size_t all = part.end, sharers = static_cast<size_t>(o_.sharers), place = static_cast<size_t>(rank_) % sharers;
  part.first = all * place / sharers, part.end = all * (place + 1) / sharers;
  return part;
}

std::vector<Answer> AnswerRounds::rolled_out(Actors& actors, const Samples& questions, const Part& part, uint64_t seed,
                                             Round& round) {
  std::vector<Heard> prompts;
  std::vector<Json> rows;
  const RowSharers sharers(actors.sharers);
  const Range share = sharers.share_of(part.end - part.first);
  const Part own{.each = part.each,
                 .first = part.first + static_cast<size_t>(share.begin),
                 .end = part.first + static_cast<size_t>(share.begin + share.size),
                 .evaluation = part.evaluation,
                 .before = part.before};
  for (size_t i = 0; i < own.end - own.first; ++i) {
    const Sample& question = questions[static_cast<size_t>(own.question(i))];
    prompts.push_back({question.ids, question.media});
  }
  for (const Sample& question : questions)
    if (environment_) rows.push_back(parse_json(question.row, "a question's columns", Fault::Bug));
  Sampling sampling = sampling_;
  sampling.seed = seed + static_cast<uint64_t>(share.begin);
  const Stopwatch watch;
  std::vector<Answer> out =
      environment_ ? played(actors, rows, prompts, own, sampling) : answered(actors, prompts, sampling, own);
  round.seconds += watch.seconds();
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].group = own.question(i);
    round.tokens += out[i].said();
  }
  return sharers.together(std::move(out));
}

// In one turn.
std::vector<Answer> AnswerRounds::answered(Actors& actors, const std::vector<Heard>& prompts, const Sampling& sampling,
                                           const Part& part) const {
  AnswerEnded ended;
  if (early_.judging)
    ended = [&](size_t i, const FinishedAnswer& finished) {
      if (finished.finish != Finish::Stop && finished.finish != Finish::Length) return;  // told when all have ended
      Answer answer = answer_of(finished);
      answer.group = part.question(i);
      early_.judging->add(i, reward_input(answer, actors, early_.rows));
    };
  const std::vector<FinishedAnswer> finished =
      actors.rollout->answers(ids_of(prompts), sampling, media_of(prompts), stop_ ? &*stop_ : nullptr, {}, ended);
  std::vector<Answer> out;
  for (size_t i = 0; i < finished.size(); ++i) {
    out.push_back(answer_of(finished[i]));
    out[i].prompt = prompts[i].ids, out[i].media = prompts[i].media;
  }
  return out;
}

Answer AnswerRounds::answer_of(const FinishedAnswer& finished) const {
  Answer answer;
  take(answer, finished);
  answer.text = said(answer, finished.at_word);
  return answer;
}

// What the engine drew is put behind what there is.
void AnswerRounds::take(Answer& answer, const FinishedAnswer& more) const {
  require_ended(more, "rolling out answers");
  for (const TokenOut& token : more.tokens)
    answer.ids.push_back(token.id), answer.engine_logprobs.push_back(token.logprob);
  add_experts(answer.experts, more.experts);
  answer.cut = more.finish == Finish::Length;
}

std::string AnswerRounds::said(const Answer& answer, bool at_word) const {
  std::vector<int32_t> ids = answer.ids;
  if (!answer.cut && !at_word && !ids.empty()) ids.pop_back();  // the token that ends the turn
  return tokenizer_->decode(ids, true);
}

Sample AnswerRounds::question(const Row& row, const Encoder& encoder) const {
  Row asked = row;
  if (environment_ && !asked.value.contains("tools"))
    if (Json tools = environment_->tools(); !tools.is_null()) asked.value["tools"] = std::move(tools);
  Sample out = encoder.encode_prompt(asked);
  if (o_.environment.of_agents() && !out.media.empty())
    throw RowError(row.origin, "messages", "an agent asks in words of its own, and its model reads text alone");
  require(out.media.empty() || o_.texts_alone.empty(), Fault::Usage, o_.texts_alone, ", and ", row.origin.text(),
          " has images, videos or sounds: leave the flag away");
  const std::lock_guard lock(mutex_);
  if (environment_) encoder_ = &encoder;
  if (o_.rewards.reward_model.empty()) return out;
  if (behind_turn_) return out;
  const Json turns = Json::array({{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}});
  const std::vector<int32_t> ids =
      encoder.encode_messages({.value = {{"messages", turns}}, .origin = row.origin}, turns).ids;
  const auto& ends = sampling_.stop_ids;
  const auto end = std::find_first_of(ids.rbegin(), ids.rend(), ends.begin(), ends.end()).base();
  behind_turn_.emplace(end == ids.begin() ? ids.end() : end, ids.end());
  return out;
}

AnswerRounds::Round AnswerRounds::ask(Actors& actors, const Samples& questions, bool training) {
  bring_servers(actors);
  Round round;
  early_ = {};  // a round that failed may have left one
  if (training) {
    begin_judging(actors, questions, mine_of(questions, o_.each));
    round = draw(actors, questions);
  } else {
    const Part part = evaluated_part(actors, questions);
    begin_judging(actors, questions, part);
    round.answers = rolled_out(actors, questions, part, evaluation_seed(actors, part), round);
    for (Answer& answer : round.answers) answer.versions.assign(answer.ids.size(), actors.step);
  }
  judge(actors, round, questions, training);
  return round;
}

void AnswerRounds::bring_servers(Actors& actors) const {
  require(actors.rollout, Fault::Bug, "there is no engine to roll answers out with");
  actors.rollout->ask_servers(o_.servers, rank_ == 0 && RowSharers(actors.sharers).first());
}

AnswerRounds::Round AnswerRounds::draw(Actors& actors, const Samples& questions) {
  Round round;
  round.answers = rolled_out(actors, questions, mine_of(questions, o_.each), seed_of(actors.step), round);
  for (Answer& answer : round.answers) answer.versions.assign(answer.ids.size(), actors.step);
  return round;
}

// A function of the step, so that a resumed run asks in the same way.
uint64_t AnswerRounds::seed_of(int64_t step) const {
  return mix(seed_, stream_named("rollout"), static_cast<uint64_t>(step * ranks_ + rank_));
}

// The numbers of a question are those of its place in the evaluation, whatever it is asked beside.
AnswerRounds::Part AnswerRounds::evaluated_part(const Actors& actors, const Samples& questions) {
  if (evaluated_.step != actors.step) evaluated_ = {.step = actors.step, .questions = 0};
  Part part = all_of(questions, o_.each_in_evaluation);
  part.evaluation = true, part.before = evaluated_.questions;
  evaluated_.questions += std::ssize(questions);
  return part;
}

uint64_t AnswerRounds::evaluation_seed(const Actors& actors, const Part& part) const {
  const auto place = static_cast<uint64_t>(actors.step * ranks_ + rank_);
  return mix(seed_, stream_named("evaluation"), place) + static_cast<uint64_t>(part.before * part.each);
}

// Groups without spread make room for answers to further questions, one for one. Ranks that share out experts all go on
// as long as one of them has such groups.
void AnswerRounds::resample(Actors& actors, Round& round, int64_t each) {
  const bool in_step = exchanges_experts(actors.policy);
  for (int64_t attempt = 1; attempt <= o_.max_resample_times && actors.more_rows; ++attempt) {
    std::vector<size_t> dead;  // the first answer of each
    for (const auto& [first, end] : groups_of(round.answers))
      if (!has_spread(round.answers, first, end)) dead.push_back(first);
    if (in_step && actors.summed(static_cast<double>(dead.size())) == 0) return;
    Samples further;
    while (further.size() < dead.size()) {
      const auto more = actors.more_rows();
      if (!more) break;
      further.insert(further.end(), more->begin(), more->end());
    }
    if (further.empty() && !in_step) return;
    const uint64_t place =
        static_cast<uint64_t>((actors.step * (o_.max_resample_times + 1) + attempt) * ranks_ + rank_);
    std::vector<Answer> fresh =
        rolled_out(actors, further, all_of(further, each), mix(seed_, stream_named("rollout again"), place), round);
    reward(actors, fresh, further);
    if (o_.asks_greedy) add_greedy_rewards(actors, further, fresh, round);
    size_t next = 0;
    for (const auto& [first, end] : groups_of(fresh)) {
      if (!has_spread(fresh, first, end) || next == dead.size()) continue;
      const size_t at = dead[next++];
      const int64_t group = round.answers[at].group;
      for (size_t i = first; i < end; ++i) {
        fresh[i].group = group;
        round.answers[at + i - first] = std::move(fresh[i]);
      }
      ++round.resampled;
    }
    if (next == dead.size() && !in_step) return;
  }
}

}  // namespace apus
