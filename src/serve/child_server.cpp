// SPDX-License-Identifier: Apache-2.0
#include "serve/child_server.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"

extern char** environ;

namespace apus {

ChildServer::ChildServer(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  // So that its own children end with it, and Ctrl-C does not reach it first.
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawnp(&process_, argv[0], nullptr, &how, argv.data(), environ);
  posix_spawnattr_destroy(&how);
  require(error == 0, Fault::Io, words.front(), " cannot be started: ", std::generic_category().message(error));
}

ChildServer::~ChildServer() {
  using namespace std::chrono_literals;
  if (ended()) return;
  ::kill(-process_, SIGTERM);
  for (int i = 0; i < 100 && !ended(); ++i) std::this_thread::sleep_for(100ms);
  if (ended()) return;
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

std::optional<std::string> ChildServer::ended() {
  int status = 0;
  if (how_ || ::waitpid(process_, &status, WNOHANG) != process_) return how_;
  how_ = WIFEXITED(status) ? str("exit code ", WEXITSTATUS(status)) : str("signal ", WTERMSIG(status));
  return how_;
}

}  // namespace apus
