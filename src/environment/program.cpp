// SPDX-License-Identifier: Apache-2.0
#include "environment/program.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"

namespace apus {
namespace {

constexpr size_t kBytesPerReply = 1 << 20;
constexpr double kCloseSeconds = 1;

}  // namespace

ProgramEnvironment::ProgramEnvironment(std::string command, const EnvironmentOptions& options)
    : command_(std::move(command)),
      timeout_(options.environment_timeout),
      skips_(options.environment_failure == "skip") {}

ProgramEnvironment::~ProgramEnvironment() = default;

std::vector<EpisodeReply> ProgramEnvironment::reset(const std::vector<EpisodeStart>& starts) {
  std::vector<std::pair<int64_t, Json>> lines;
  for (const EpisodeStart& start : starts) {
    // As text of few digits: not every language has whole numbers of 64 bits.
    lines.emplace_back(start.episode,
                       Json{{"op", "reset"}, {"id", start.episode}, {"row", *start.row}, {"seed", start.seed >> 11}});
    open_.push_back(start.episode);
  }
  return asked(lines);
}

std::vector<EpisodeReply> ProgramEnvironment::step(const std::vector<EpisodeTurn>& turns) {
  std::vector<std::pair<int64_t, Json>> lines;
  for (const EpisodeTurn& turn : turns)
    lines.emplace_back(turn.episode, Json{{"op", "step"},
                                          {"id", turn.episode},
                                          {"turn", turn.turn},
                                          {"completion", turn.text},
                                          {"completion_ids", turn.tokens},
                                          {"truncated", turn.cut}});
  return asked(lines);
}

void ProgramEnvironment::close() {
  std::string text;
  for (const int64_t episode : std::exchange(open_, {}))
    text += json_text(Json{{"op", "close"}, {"id", episode}}) + "\n";
  if (program_) program_->talk(text, kCloseSeconds, kBytesPerReply, [] { return true; });
}

std::vector<EpisodeReply> ProgramEnvironment::asked(const std::vector<std::pair<int64_t, Json>>& lines) {
  try {
    if (!program_) program_ = std::make_unique<Program>(command_, "environment");
    return replies_to(lines);
  } catch (const Error& error) {
    program_.reset();  // whatever it does now, it is not what it was asked
    if (!skips_ || error.at.fault != Fault::Data) throw;
    log_warning(error.what(), " (--environment_failure skip: ", lines.size(), " answers end here)");
    return std::vector<EpisodeReply>(lines.size(), {.done = true, .failure = error.what()});
  }
}

std::vector<EpisodeReply> ProgramEnvironment::replies_to(const std::vector<std::pair<int64_t, Json>>& lines) {
  std::string text;
  for (const auto& [episode, line] : lines) text += json_text(line) + "\n";
  program_->printed.clear();
  const auto wanted = static_cast<long>(lines.size());
  const auto enough = [&] { return std::count(program_->printed.begin(), program_->printed.end(), '\n') >= wanted; };
  const Program::Heard heard = program_->talk(text, timeout_, kBytesPerReply * lines.size(), enough);
  const auto came = std::count(program_->printed.begin(), program_->printed.end(), '\n');
  require(heard != Program::Heard::Late, Fault::Data, "the environment '", command_, "' gave ", came, " of ", wanted,
          " replies in ", timeout_, " s (--environment_timeout). Does it print a line for each, and flush it?",
          program_->last_words());
  require(heard != Program::Heard::TooMuch, Fault::Data, "the environment '", command_, "' prints more than ",
          kBytesPerReply, " bytes a reply");
  if (heard == Program::Heard::End) {
    const int status = program_->wait(false);
    fail(Fault::Data, "the environment '", command_, "' ", how_it_ended(status), " after ", came, " of ", wanted,
         " replies; it should go on until its input ends", program_->last_words());
  }
  std::map<int64_t, EpisodeReply> by_episode;
  for (size_t begin = 0; begin < program_->printed.size();) {
    const size_t end = std::min(program_->printed.find('\n', begin), program_->printed.size());
    const std::string line = program_->printed.substr(begin, end - begin);
    begin = end + 1;
    const std::string where = str("what the environment '", command_, "' printed ('", line.substr(0, 200), "')");
    const Json reply = parse_json(line, where);
    require(reply.is_object() && reply.contains("id") && reply["id"].is_number_integer(), Fault::Data, where,
            " is no object with the 'id' that it was asked with");
    const auto id = reply["id"].get<int64_t>();
    const auto asked = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == id; });
    require(asked != lines.end() && !by_episode.count(id), Fault::Data, where, ": ", id,
            asked == lines.end() ? " was not asked for" : " has a reply already");
    by_episode[id] = read_reply(reply, where);
  }
  std::vector<EpisodeReply> out;
  for (const auto& [episode, line] : lines) out.push_back(std::move(by_episode.at(episode)));
  return out;
}

}  // namespace apus
