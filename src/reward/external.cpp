// SPDX-License-Identifier: Apache-2.0
#include "reward/external.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmath>
#include <cstring>
#include <sstream>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/log.h"

extern char** environ;

namespace apus {
namespace {

constexpr size_t kBytesPerAnswer = 4096;  // that a program may print
constexpr size_t kErrorBytesKept = 2000;  // of the end of what it says on its error output
constexpr size_t kPieceBytes = 65536;

// Its own process group, so that it is ended with its children.
class RewardProgram {
 public:
  explicit RewardProgram(const std::string& command) {
    int ends[2];
    const bool paired = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
    require(paired && out_.is_open() && errors_.is_open(), Fault::Io,
            "no file descriptors are left for the reward program '", command, "'");
    input_.reset(ends[0]);
    const Descriptor its_input(ends[1]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, its_input.number(), 0);
    posix_spawn_file_actions_adddup2(&files, out_.write_end.number(), 1);
    posix_spawn_file_actions_adddup2(&files, errors_.write_end.number(), 2);
    posix_spawnattr_t how;
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    std::string shell = "/bin/sh", flag = "-c", text = command;
    char* argv[] = {shell.data(), flag.data(), text.data(), nullptr};
    const int error = ::posix_spawn(&child_, "/bin/sh", &files, &how, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    require(error == 0, Fault::Io, "the reward program '", command, "' cannot be started: ", std::strerror(error));
    out_.write_end.reset(), errors_.write_end.reset();
  }
  ~RewardProgram() { wait(true); }

  // Gives it `text` and takes what it prints. False: the time is over, or it prints more than `most` bytes.
  bool talk(const std::string& text, double seconds, size_t most) {
    const Stopwatch watch;
    size_t written = 0;
    while (out_.read_end.is_open() || errors_.read_end.is_open()) {
      const double left = seconds - watch.seconds();
      if (left <= 0 || printed.size() > most) return false;
      if (written == text.size()) input_.reset();
      pollfd all[3] = {
          {input_.number(), POLLOUT, 0}, {out_.read_end.number(), POLLIN, 0}, {errors_.read_end.number(), POLLIN, 0}};
      ::poll(all, 3, static_cast<int>(std::min(left, 1.0) * 1000) + 1);
      if (all[0].revents) give(text, written);
      if (all[1].revents) take(out_.read_end, printed);
      if (all[2].revents) take(errors_.read_end, said);
      if (said.size() > 2 * kErrorBytesKept) said.erase(0, said.size() - kErrorBytesKept);
    }
    return true;
  }

  // Its wait status. `now`: it is ended first.
  int wait(bool now) {
    if (child_ <= 0) return status_;
    if (now) ::kill(-child_, SIGKILL);
    while (::waitpid(child_, &status_, 0) < 0 && errno == EINTR) {}
    if (!now) ::kill(-child_, SIGKILL);  // what it left behind
    child_ = -1;
    return status_;
  }

  std::string printed, said;

 private:
  void give(const std::string& text, size_t& written) {
    const ssize_t count = ::send(input_.number(), text.data() + written, std::min(kPieceBytes, text.size() - written),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) written += static_cast<size_t>(count);
    // A program that does not read all of it may still print an answer for each line.
    if (count < 0 && errno != EAGAIN && errno != EINTR) written = text.size();
  }
  static void take(Descriptor& from, std::string& into) {
    char piece[kPieceBytes];
    const ssize_t count = ::read(from.number(), piece, sizeof piece);
    if (count > 0) into.append(piece, static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) from.reset();
  }
  Pipe out_, errors_;
  Descriptor input_;
  pid_t child_ = -1;
  int status_ = 0;
};

std::string line_about(const RewardInput& answer) {
  Json line = answer.row ? *answer.row : Json::object();
  line["completion"] = answer.completion;
  line["completion_ids"] = answer.tokens;
  line["truncated"] = answer.cut;
  return json_text(line) + "\n";
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return str("was ended by signal ", WTERMSIG(status));
  return str("ended with code ", WEXITSTATUS(status));
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

std::string program_name(const std::string& command) {
  std::istringstream words(command);
  std::string best;
  for (std::string word; words >> word;)
    if (best.empty() || (word[0] != '-' && best.find('/') == std::string::npos && best.find('.') == std::string::npos))
      best = word;
  return best.substr(best.rfind('/') + 1);
}

ExternalReward::ExternalReward(std::string command, const RewardOptions& options)
    : command_(std::move(command)), timeout_(options.reward_timeout), skips_(options.reward_failure == "skip") {}

std::vector<double> ExternalReward::score(const std::vector<RewardInput>& answers) {
  try {
    return asked(answers);
  } catch (const Error& error) {
    if (!skips_ || error.at.fault != Fault::Data) throw;
    log_warning(error.what(), " (--reward_failure skip: its opinion of these ", answers.size(),
                " answers is left out)");
    return std::vector<double>(answers.size(), NAN);
  }
}

std::vector<double> ExternalReward::asked(const std::vector<RewardInput>& answers) const {
  std::string text;
  for (const RewardInput& answer : answers) text += line_about(answer);
  RewardProgram program(command_);
  const size_t most = kBytesPerAnswer * (answers.size() + 1);
  const bool done = program.talk(text, timeout_, most);
  const int status = program.wait(!done);
  const std::string last_words =
      program.said.empty()
          ? ""
          : "; it said: " + program.said.substr(program.said.size() - std::min(program.said.size(), kErrorBytesKept));
  require(done || program.printed.size() > most, Fault::Data, "the reward program '", command_, "' was not done with ",
          answers.size(), " answers after ", timeout_, " s (--reward_timeout)", last_words);
  require(program.printed.size() <= most, Fault::Data, "the reward program '", command_, "' prints more than ",
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
