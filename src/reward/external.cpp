// SPDX-License-Identifier: Apache-2.0
#include "reward/external.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/program.h"

namespace apus {
namespace {

constexpr size_t kBytesPerAnswer = 4096;  // that a program may print

std::string line_about(const RewardInput& answer) {
  Json line = answer.row ? *answer.row : Json::object();
  line["completion"] = answer.completion;
  line["completion_ids"] = answer.tokens;
  line["truncated"] = answer.cut;
  if (answer.trajectory) line["trajectory"] = *answer.trajectory;
  return json_text(line) + "\n";
}

double reward_on_line(const std::string& line, const std::string& where) {
  const Json value = parse_json(line, where);
  const Json& reward = value.is_object() && value.contains("reward") ? value["reward"] : value;
  if (reward.is_null()) return NAN;
  if (reward.is_boolean()) return reward.get<bool>() ? 1 : 0;
  require(reward.is_number() && std::isfinite(reward.get<double>()), Fault::Data, where, ": '", line.substr(0, 200),
          "' is no reward; print a number, null, or {\"reward\": number} for each answer");
  return reward.get<double>();
}

}  // namespace

void check_program(const std::string& command, const std::string& flag) {
  const std::string word = command.substr(0, command.find_first_of(" \t"));
  if (word.empty() || word.find_first_of("|&;<>()$`\\\"'*?[#~=%{}!=") != std::string::npos)
    return;  // the shell's business
  const auto said = [&](const auto&... why) { fail(Fault::Usage, flag, " ", kExternalReward, command, ": ", why...); };
  std::error_code code;
  const bool here = std::filesystem::is_regular_file(word, code);
  if (word.find('/') == std::string::npos) {
    if (here && !program_on_path(word))
      said("the shell looks for ", word, " on PATH alone; for the file here write ", kExternalReward, "./", command);
    return;
  }
  if (!here) said("there is no file ", word);
  if (::access(word.c_str(), X_OK) != 0)
    said(word, " may not be run: chmod +x ", word, ", or name its interpreter: ", kExternalReward, "'python3 ", command,
         "'");
}

ExternalReward::ExternalReward(std::string command, const RewardOptions& options)
    : command_(std::move(command)), timeout_(options.reward_timeout), skips_(options.reward_failure == "skip") {}

std::vector<double> ExternalReward::score(const std::vector<RewardInput>& answers) {
  try {
    return asked(answers, std::exchange(begun_, {}));
  } catch (const Error& error) {
    if (!skips_ || error.at.fault != Fault::Data) throw;
    log_warning(error.what(), " (--reward_failure skip: its opinion of these ", answers.size(),
                " answers is left out)");
    return std::vector<double>(answers.size(), NAN);
  }
}

// What goes wrong here is told by asked().
void ExternalReward::hear(const std::vector<RewardInput>& answers) {
  if (!begun_.program) begun_.program = std::make_unique<Program>(command_, "reward program");
  std::string text;
  for (const RewardInput& answer : answers) text += line_about(answer);
  begun_.heard += answers.size();
  const size_t most = kBytesPerAnswer * (begun_.heard + 1);
  begun_.late |= begun_.program->talk(text, timeout_, most, [] { return true; }) == Program::Heard::Late;
}

std::vector<double> ExternalReward::asked(const std::vector<RewardInput>& answers, Begun begun) const {
  std::string text;
  for (size_t i = begun.heard; i < answers.size(); ++i) text += line_about(answers[i]);
  if (!begun.program) begun.program = std::make_unique<Program>(command_, "reward program");
  Program& program = *begun.program;
  const size_t most = kBytesPerAnswer * (answers.size() + 1);
  const Program::Heard heard = begun.late ? Program::Heard::Late : program.talk(text, timeout_, most);
  const int status = program.wait(heard != Program::Heard::End);
  const std::string last_words = program.last_words();
  require(heard != Program::Heard::Late, Fault::Data, "the reward program '", command_, "' was not done with ",
          answers.size(), " answers after ", timeout_, " s (--reward_timeout)", last_words);
  require(heard == Program::Heard::End, Fault::Data, "the reward program '", command_, "' prints more than ",
          kBytesPerAnswer, " bytes an answer; it should print a number on a line for each");
  require(WIFEXITED(status) && WEXITSTATUS(status) == 0, Fault::Data, "the reward program '", command_, "' ",
          how_it_ended(status), last_words);
  std::vector<double> out;
  for (size_t begin = 0; begin < program.printed.size();) {
    const size_t end = std::min(program.printed.find('\n', begin), program.printed.size());
    const std::string line = program.printed.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    out.push_back(
        reward_on_line(line, str("line ", out.size() + 1, " of what the reward program '", command_, "' printed")));
  }
  require(out.size() == answers.size(), Fault::Data, "the reward program '", command_, "' printed ", out.size(),
          " rewards for ", answers.size(), " answers", last_words);
  return out;
}

}  // namespace apus
