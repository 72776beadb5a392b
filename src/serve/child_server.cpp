// SPDX-License-Identifier: Apache-2.0
#include "serve/child_server.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/descriptor.h"
#include "base/error.h"

extern char** environ;

namespace apus {

namespace {

std::vector<std::string> environment_of(const ChildServer::Spec& spec) {
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    if (!spec.environment.count(entry.substr(0, entry.find('=')))) all.push_back(entry);
  }
  for (const auto& [name, value] : spec.environment)
    if (value) all.push_back(name + "=" + *value);
  return all;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

}  // namespace

// A group of its own: its own children end with it, and Ctrl-C does not reach it first. It does not outlive us.
ChildServer::ChildServer(const Spec& spec) {
  const std::vector<std::string> environment = environment_of(spec);
  const std::vector<char*> argv = pointers_to(spec.words), env = pointers_to(environment);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (const int core : spec.cores) CPU_SET(core, &cores);
  Pipe failure;  // closed by a program that has started, else told why not
  const pid_t parent = ::getpid();
  process_ = ::fork();
  require(process_ >= 0, Fault::Io, spec.words.front(), " cannot be started: ", std::strerror(errno));
  if (process_ == 0) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(128 + SIGKILL);
    if (!spec.output.empty()) {
      const int file = ::open(spec.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (file >= 0) ::dup2(file, 1), ::dup2(file, 2);
    }
    if (!spec.cores.empty()) ::sched_setaffinity(0, sizeof cores, &cores);
    ::execvpe(spec.program.empty() ? argv[0] : spec.program.c_str(), argv.data(), env.data());
    const int why = errno;
    static_cast<void>(!::write(failure.write_end.number(), &why, sizeof why));
    ::_exit(127);
  }
  ::setpgid(process_, process_);  // here and in the child: whoever comes first
  failure.write_end.reset();
  int why = 0;
  if (::read(failure.read_end.number(), &why, sizeof why) != sizeof why) return;
  ::waitpid(process_, nullptr, 0);
  fail(Fault::Io, spec.words.front(), " cannot be started: ", std::strerror(why));
}

ChildServer::~ChildServer() {
  using namespace std::chrono_literals;
  ask_to_end();
  for (int i = 0; i < 100 && !ended(); ++i) std::this_thread::sleep_for(100ms);
  if (ended()) return;
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

void ChildServer::ask_to_end() {
  if (!ended()) ::kill(-process_, SIGTERM);
}

std::optional<std::string> ChildServer::ended() {
  int status = 0;
  if (how_ || ::waitpid(process_, &status, WNOHANG) != process_) return how_;
  how_ = WIFEXITED(status) ? str("exit code ", WEXITSTATUS(status)) : str("signal ", WTERMSIG(status));
  return how_;
}

}  // namespace apus
