// SPDX-License-Identifier: Apache-2.0
#include "base/program.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "base/clock.h"
#include "base/error.h"

extern char** environ;

namespace apus {
namespace {

constexpr size_t kErrorBytesKept = 2000;  // of the end of what it says on its error output
constexpr size_t kPieceBytes = 65536;

}  // namespace

Program::Program(const std::string& command, const std::string& role) {
  int ends[2];
  const bool paired = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
  require(paired && out_.is_open() && errors_.is_open() && nudges_.is_open(), Fault::Io,
          "no file descriptors are left for the ", role, " '", command, "'");
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
  require(error == 0, Fault::Io, "the ", role, " '", command, "' cannot be started: ", std::strerror(error));
  out_.write_end.reset(), errors_.write_end.reset();
}

Program::Heard Program::talk(const std::string& text, double seconds, size_t most,
                             const std::function<bool()>& enough) {
  const Stopwatch watch;
  given_.erase(0, std::exchange(taken_, 0)), given_ += text;
  while (out_.read_end.is_open() || (!enough && errors_.read_end.is_open())) {
    const double left = seconds - watch.seconds();
    if (printed.size() > most) return Heard::TooMuch;
    if (enough && taken_ == given_.size() && enough()) return Heard::Enough;
    if (left <= 0) return Heard::Late;
    if (!enough && taken_ == given_.size()) input_.reset();
    const int wanted = taken_ < given_.size() ? input_.number() : -1;
    pollfd all[4] = {{wanted, POLLOUT, 0},
                     {out_.read_end.number(), POLLIN, 0},
                     {errors_.read_end.number(), POLLIN, 0},
                     {nudges_.read_end.number(), POLLIN, 0}};
    ::poll(all, 4, static_cast<int>(std::min(left, 1.0) * 1000) + 1);
    if (all[0].revents) give();
    if (all[1].revents) take(out_.read_end, printed);
    if (all[2].revents) hear();
    if (std::string nudges; all[3].revents) take(nudges_.read_end, nudges);
    if (said_.size() > 2 * kErrorBytesKept) said_.erase(0, said_.size() - kErrorBytesKept);
  }
  if (printed.size() > most) return Heard::TooMuch;
  return enough && enough() ? Heard::Enough : Heard::End;
}

void Program::nudge() {
  const char one = 0;
  const ssize_t written = ::write(nudges_.write_end.number(), &one, 1);
  (void)written;  // a pipe that is full has been nudged
}

int Program::wait(bool now) {
  if (child_ <= 0) return status_;
  if (now) ::kill(-child_, SIGKILL);
  while (::waitpid(child_, &status_, 0) < 0 && errno == EINTR) {}
  if (!now) ::kill(-child_, SIGKILL);  // what it left behind
  child_ = -1;
  while (errors_.read_end.is_open() && said_.size() < kErrorBytesKept) {  // what it said before its end
    pollfd rest{errors_.read_end.number(), POLLIN, 0};
    if (::poll(&rest, 1, 0) <= 0) break;
    hear();
  }
  return status_;
}

std::string Program::last_words() const {
  return said_.empty() ? "" : "; it said: " + said_.substr(said_.size() - std::min(said_.size(), kErrorBytesKept));
}

void Program::give() {
  const ssize_t count = ::send(input_.number(), given_.data() + taken_, std::min(kPieceBytes, given_.size() - taken_),
                               MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count > 0) taken_ += static_cast<size_t>(count);
  // A program that does not read all of it may still answer each line.
  if (count < 0 && errno != EAGAIN && errno != EINTR) taken_ = given_.size();
}

void Program::hear() {
  const size_t before = said_.size();
  take(errors_.read_end, said_);
  if (overhears && said_.size() > before) overhears(said_.substr(before));
}

void Program::take(Descriptor& from, std::string& into) {
  char piece[kPieceBytes];
  const ssize_t count = ::read(from.number(), piece, sizeof piece);
  if (count > 0) into.append(piece, static_cast<size_t>(count));
  if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) from.reset();
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return str("was ended by signal ", WTERMSIG(status));
  return str("ended with code ", WEXITSTATUS(status));
}

std::optional<std::filesystem::path> program_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto file = std::filesystem::path(folder.empty() ? "." : folder) / name;
    std::error_code code;
    if (std::filesystem::is_regular_file(file, code) && ::access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

std::string program_name(const std::string& command) {
  std::istringstream words(command);
  std::string best;
  for (std::string word; words >> word;)
    if (best.empty() || (word[0] != '-' && best.find('/') == std::string::npos && best.find('.') == std::string::npos))
      best = word;
  return best.substr(best.rfind('/') + 1);
}

}  // namespace apus
