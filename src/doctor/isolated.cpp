// SPDX-License-Identifier: Apache-2.0
#include "doctor/isolated.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"

namespace apus {

namespace {
constexpr size_t kMostText = size_t{8} << 20, kMostSaid = 4096;

void write_all(int to, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t done = ::write(to, text.data() + at, text.size() - at);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    at += static_cast<size_t>(done);
  }
}

[[noreturn]] void child(const std::function<std::string()>& work, int result, int said) {
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nothing, 1);
  ::dup2(said, 2);
  ::setpgid(0, 0);  // so that what it starts ends with it
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  int code = 0;
  try {
    write_all(result, work());
  } catch (const std::exception& error) {
    write_all(2, error.what());
    code = 1;
  }
  ::_exit(code);  // no destructors: they belong to the parent
}

// Reads both until they close; false when the time is over first.
bool read_both(int result, int said, Isolated& into, double limit_s) {
  const Stopwatch watch;
  pollfd waiting[2] = {{result, POLLIN, 0}, {said, POLLIN, 0}};
  char buffer[16384];
  for (int open = 2; open > 0;) {
    const double left = limit_s - watch.seconds();
    if (left <= 0) return false;
    const int ready = ::poll(waiting, 2, static_cast<int>(left * 1000) + 1);
    if (ready < 0 && errno != EINTR) return true;
    for (pollfd& each : waiting) {
      if (each.fd < 0 || !each.revents) continue;
      const ssize_t got = ::read(each.fd, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        each.fd = -1;  // poll() passes over it
        --open;
      } else if (&each == &waiting[0]) {
        if (into.text.size() < kMostText) into.text.append(buffer, static_cast<size_t>(got));
      } else {
        into.said.append(buffer, static_cast<size_t>(got));
        if (into.said.size() > kMostSaid) into.said.erase(0, into.said.size() - kMostSaid);
      }
    }
  }
  return true;
}
}  // namespace

Isolated run_isolated(const std::function<std::string()>& work, double limit_s) {
  Pipe result, said;
  require(result.is_open() && said.is_open(), Fault::Io, "no pipe: ", std::strerror(errno));
  const pid_t pid = ::fork();
  require(pid >= 0, Fault::Io, "no process can be started: ", std::strerror(errno));
  if (pid == 0) child(work, result.write_end.number(), said.write_end.number());
  result.write_end.reset(), said.write_end.reset();
  Isolated outcome;
  const bool in_time = read_both(result.read_end.number(), said.read_end.number(), outcome, limit_s);
  if (!in_time && ::kill(-pid, SIGKILL) != 0) ::kill(pid, SIGKILL);
  result.read_end.reset(), said.read_end.reset();
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  if (!in_time)
    outcome.end = Isolated::End::Hung;
  else if (WIFSIGNALED(status))
    outcome.end = Isolated::End::Crashed, outcome.signal = WTERMSIG(status);
  else if (WEXITSTATUS(status) != 0)
    outcome.end = Isolated::End::Crashed;
  return outcome;
}

}  // namespace apus
