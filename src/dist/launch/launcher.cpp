// SPDX-License-Identifier: Apache-2.0
#include "dist/launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/files.h"
#include "base/lines.h"
#include "base/log.h"
#include "base/ports.h"
#include "dist/launch/first_machine.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr size_t kNoteBytes = 4000;  // a write of so many bytes to a pipe is never cut in two

int rendezvous_port() {
  const auto port = free_port();
  require(port.has_value(), Fault::Comm, "no free port for the ranks to meet at: ", ::strerror(errno),
          "; set MASTER_PORT");
  return *port;
}

// "rank 3 ..." says itself whom it is about, which may be another one than the one that tells it.
bool names_a_rank(const std::string& text) {
  constexpr std::string_view kRank = "rank ";
  return text.starts_with(kRank) && text.size() > kRank.size() &&
         std::isdigit(static_cast<unsigned char>(text[kRank.size()]));
}

struct Failure {
  int local_rank = 0;
  std::optional<Fault> fault;  // as the rank told it
  std::string text;
  int status = 0;  // of waitpid, when it ended without a word
};

// How a rank ends that has stopped as asked, itself or, through the others' word, by somebody elsewhere: no failure.
bool is_stop(int exit_code) {
  const int signal = exit_code - 128;
  return signal == SIGINT || signal == SIGTERM || signal == SIGUSR1;
}

struct Rank {
  pid_t process = -1;
  bool ended = false, told = false;
};

class Launcher {
 public:
  explicit Launcher(const Launch& launch) : launch_(launch), ranks_(static_cast<size_t>(launch.plan.ranks)) {
    sigemptyset(&signals_);
    for (const int s : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD}) sigaddset(&signals_, s);
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
    require(notes_.is_open(), Fault::Io, "cannot make a pipe: ", ::strerror(errno));
    ::fcntl(notes_.write_end.number(), F_SETFD, 0);  // the ranks inherit it
    ::fcntl(notes_.read_end.number(), F_SETFL, O_NONBLOCK);
    events_.reset(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    require(events_.is_open(), Fault::Io, "cannot watch signals: ", ::strerror(errno));
  }
  ~Launcher() {
    signal_all(SIGKILL);
    for (Rank& rank : ranks_)
      if (!rank.ended && rank.process > 0) ::waitpid(rank.process, nullptr, 0);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }

  int run() {
    port_ = launch_.plan.port > 0 ? launch_.plan.port : rendezvous_port();
    for (int i = 0; i < launch_.plan.ranks; ++i) start(i);
    notes_.write_end.reset();
    while (living() > 0) {
      wait_for_events();
      read_signals();
      read_notes();
      if (!failures_.empty() && !failing_since_ && !interrupted_) failing_since_ = watch_.seconds();
      stop_the_rest();
    }
    read_notes();
    if (interrupted_) return 128 + interrupted_;
    if (!failures_.empty()) return tell(worst());
    if (stopped_) log_info("the ranks of this machine have stopped, as those of another one were asked to");
    return stopped_;
  }
  // Processes were killed, or lost one another or their device: what may go well the next time.
  bool lost() const {
    if (interrupted_ || failures_.empty()) return false;
    const std::optional<Fault> fault = worst().fault;
    return !fault || *fault == Fault::Comm || *fault == Fault::Device;
  }

 private:
  size_t living() const {
    return static_cast<size_t>(std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return !r.ended; }));
  }
  int world_rank(int local) const { return launch_.plan.node * launch_.plan.ranks + local; }
  fs::path log_file(int local) const { return launch_.log_dir / str("rank", world_rank(local), ".log"); }

  void start(int local) {
    const std::map<std::string, std::string> settings = settings_of(local);
    std::vector<std::string> environment;
    for (char** e = environ; *e; ++e) {
      const std::string entry = *e;
      if (!settings.count(entry.substr(0, entry.find('=')))) environment.push_back(entry);
    }
    for (const auto& [name, value] : settings) environment.push_back(name + "=" + value);
    std::vector<char*> argv, env;
    for (const auto& word : launch_.argv) argv.push_back(const_cast<char*>(word.c_str()));
    for (const auto& entry : environment) env.push_back(const_cast<char*>(entry.c_str()));
    argv.push_back(nullptr), env.push_back(nullptr);
    const std::string output = local == 0 ? "" : log_file(local).string();
    const std::vector<int> cores = share_of_cores(allowed_cores(), local, launch_.plan.ranks);
    const pid_t parent = ::getpid(), process = ::fork();
    require(process >= 0, Fault::Io, "cannot start rank ", world_rank(local), ": ", ::strerror(errno));
    if (process == 0) become_rank(parent, output, cores, argv.data(), env.data());
    ::setpgid(process, process);  // here and in the child: whoever comes first
    ranks_[static_cast<size_t>(local)].process = process;
  }

  std::map<std::string, std::string> settings_of(int local) const {
    const LaunchPlan& plan = launch_.plan;
    std::map<std::string, std::string> s = {{"RANK", str(world_rank(local))},
                                            {"WORLD_SIZE", str(plan.ranks * plan.nodes)},
                                            {"LOCAL_RANK", str(local)},
                                            {"LOCAL_WORLD_SIZE", str(plan.ranks)},
                                            {"MASTER_ADDR", plan.address},
                                            {"MASTER_PORT", str(port_)},
                                            {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                                            {kLauncherVariable, str(notes_.write_end.number())}};
    const auto cores = static_cast<int>(allowed_cores().size());
    if (!std::getenv("OMP_NUM_THREADS")) s["OMP_NUM_THREADS"] = str(std::max(1, cores / plan.ranks));
    if (!std::getenv("TORCH_CPP_LOG_LEVEL"))
      s["TORCH_CPP_LOG_LEVEL"] = "ERROR";  // c10d remarks on every attempt to connect
    return s;
  }

  // Between fork and exec. A group of its own:
  // the terminal's Ctrl-C reaches the launcher only, which passes it on once.
  [[noreturn]] void become_rank(pid_t parent, const std::string& output, const std::vector<int>& cores, char** argv,
                                char** env) const {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(128 + SIGKILL);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(nothing, 0);
    if (!output.empty()) {
      const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_APPEND, 0644);
      if (file >= 0) ::dup2(file, 1), ::dup2(file, 2);
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(core, &set);
    const char* bind = std::getenv("APUS_BIND_CPUS");
    if (!cores.empty() && !(bind && bind[0] == '0')) ::sched_setaffinity(0, sizeof set, &set);
    ::execve("/proc/self/exe", argv, env);
    ::_exit(127);
  }

  void wait_for_events() const {
    pollfd watched[2] = {{events_.number(), POLLIN, 0}, {notes_.read_end.number(), POLLIN, 0}};
    // Looked at again after a while in any case: a process with further threads may lose a SIGCHLD to one of them.
    const int limit_ms = failing_since_ ? 100 : 250;
    // After the last rank's end the pipe stays readable (closed): only its notes matter then.
    ::poll(watched, notes_closed_ ? 1 : 2, limit_ms);
  }

  void read_signals() {
    for (signalfd_siginfo info{}; ::read(events_.number(), &info, sizeof info) == sizeof info;) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      interrupted_ = signal;
      signal_all(++times_interrupted_ < 3 ? signal : SIGKILL);
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      int status = 0;
      if (ranks_[i].ended || ::waitpid(ranks_[i].process, &status, WNOHANG) != ranks_[i].process) continue;
      read_notes();  // what it said before it went
      ranks_[i].ended = true;
      bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      if (WIFEXITED(status) && is_stop(WEXITSTATUS(status))) stopped_ = WEXITSTATUS(status), good = true;
      if (!good && !ranks_[i].told && !stopping_) failures_.push_back({static_cast<int>(i), std::nullopt, "", status});
      if (!good) codes_[static_cast<int>(i)] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }

  // "<rank> <fault> <text>\0" each.
  void read_notes() {
    char buffer[1 << 14];
    for (;;) {
      const ssize_t n = ::read(notes_.read_end.number(), buffer, sizeof buffer);
      if (n == 0) notes_closed_ = true;
      if (n <= 0) break;
      pending_.append(buffer, static_cast<size_t>(n));
    }
    for (size_t end; (end = pending_.find('\0')) != std::string::npos; pending_.erase(0, end + 1)) {
      int rank = -1, fault = 0, used = 0;
      if (std::sscanf(pending_.c_str(), "%d %d %n", &rank, &fault, &used) < 2 || rank < 0 ||
          rank >= launch_.plan.ranks || fault < 0 || fault > static_cast<int>(Fault::Bug))
        continue;
      Rank& teller = ranks_[static_cast<size_t>(rank)];
      if (!teller.told && !stopping_)
        failures_.push_back({rank, static_cast<Fault>(fault),
                             pending_.substr(static_cast<size_t>(used), end - static_cast<size_t>(used)), 0});
      teller.told = true;
    }
  }

  void signal_all(int signal) {
    for (const Rank& rank : ranks_)
      if (!rank.ended && rank.process > 0) ::kill(-rank.process, signal);
  }

  // The others wait for the lost one, or fail for want of it: they get a while to say so, and are then ended.
  void stop_the_rest() {
    if (!failing_since_) return;
    const double since = watch_.seconds() - *failing_since_;
    if (since > launch_.grace_s && !stopping_) stopping_ = true, note_silent(), signal_all(SIGTERM);
    if (since > launch_.grace_s + 5) signal_all(SIGKILL);
  }

  // Who has neither ended nor said why, when all others have: whom they waited for.
  void note_silent() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].ended || ranks_[i].told) continue;
      std::string stat;
      try {
        LineReader(str("/proc/", ranks_[i].process, "/stat")).next(stat);
      } catch (const Error&) {  // it has just ended
      }
      const size_t state = stat.rfind(") ");
      const bool stopped =
          state != std::string::npos && state + 2 < stat.size() && (stat[state + 2] == 'T' || stat[state + 2] == 't');
      silent_.push_back(
          str("rank ", world_rank(static_cast<int>(i)), " has said nothing all the while",
              stopped ? str(": its process ", ranks_[i].process, " is stopped (SIGSTOP, or a debugger)")
                      : ": if the others waited for it, look at what its process, its device or its link does"));
    }
  }

  // The cause rather than its consequences: who lost a peer speaks of another's end.
  const Failure& worst() const {
    for (const Failure& f : failures_)
      if (f.fault != Fault::Comm) return f;
    return failures_.front();
  }

  int tell(const Failure& f) const {
    const int rank = world_rank(f.local_rank);
    const auto code = codes_.find(f.local_rank);
    Log::of().status("");
    if (f.fault) {
      log_error(names_a_rank(f.text) ? f.text : str("rank ", rank, ": ", f.text));
    } else if (WIFSIGNALED(f.status)) {
      const int signal = WTERMSIG(f.status);
      log_error(str("rank ", rank, " was ended by signal ", signal, " (", ::strsignal(signal), ")",
                    signal == SIGKILL ? ": by somebody's kill -9, or by the system for want of memory (see dmesg)" : "",
                    tail(f.local_rank)));
    } else {
      log_error(str("rank ", rank, " ended with exit code ", WEXITSTATUS(f.status), " and no explanation",
                    tail(f.local_rank)));
    }
    if (f.fault == Fault::Comm && silent_.size() < ranks_.size())
      for (const std::string& text : silent_) log_error(text);
    if (ranks_.size() > 1 || launch_.plan.nodes > 1)
      log_error(
          str("all ranks of this machine have been stopped",
              f.local_rank > 0 ? str("; what rank ", rank, " said is in ", log_file(f.local_rank).string()) : ""));
    // Who said why may have been ended by a signal on the way out: the reason counts.
    if (f.fault) return exit_code(*f.fault);
    return code == codes_.end() ? exit_code(Fault::Bug) : code->second;
  }

  std::string tail(int local) const {
    std::error_code code;
    if (local == 0 || fs::file_size(log_file(local), code) > (64 << 20) || code) return "";
    const std::string text = read_file(log_file(local));
    size_t begin = text.size();
    for (int lines = 0; begin > 0 && lines <= 8; --begin) lines += text[begin - 1] == '\n';
    return begin < text.size() ? "; the end of its output:\n" + text.substr(begin) : "";
  }

  const Launch& launch_;
  std::vector<Rank> ranks_;
  sigset_t signals_, before_;
  Pipe notes_;
  Descriptor events_;
  int port_ = 0, interrupted_ = 0, times_interrupted_ = 0;
  int stopped_ = 0;  // the exit code of ranks that stopped as asked; 0: none
  bool stopping_ = false, notes_closed_ = false;
  std::optional<double> failing_since_;
  std::vector<Failure> failures_;  // in the order in which they became known
  std::vector<std::string> silent_;
  std::map<int, int> codes_;  // exit codes of the ranks that failed
  std::string pending_;
  Stopwatch watch_;
};

}  // namespace

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  return cores;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int local_rank, int local_world) {
  const size_t n = cores.size(), world = static_cast<size_t>(local_world), rank = static_cast<size_t>(local_rank);
  if (n < world) return cores;
  return {cores.begin() + static_cast<long>(n * rank / world),
          cores.begin() + static_cast<long>(n * (rank + 1) / world)};
}

int launch(const Launch& plan) {
  if (plan.plan.nodes > 1) require_known_machine(plan.plan.address, "MASTER_ADDR");
  if (plan.plan.ranks > 1) make_writable_dir(plan.log_dir);
  std::string line;
  for (const auto& word : plan.argv) line += (line.empty() ? "" : " ") + word;
  log_info("run sh: `", line, "` as ", plan.plan.ranks, plan.plan.ranks == 1 ? " process" : " processes",
           plan.plan.nodes > 1 ? str(" on node ", plan.plan.node, " of ", plan.plan.nodes) : "",
           plan.plan.ranks > 1 ? str("; the output of all but the first is in ", plan.log_dir.string()) : "");
  Launch current = plan;
  for (int64_t left = plan.restarts;; --left) {
    Launcher launcher(current);
    const int code = launcher.run();
    if (code == 0 || left <= 0 || !launcher.lost()) return code;
    if (plan.again) current.argv = plan.again();
    log_warning("the run is started again (--max_restarts: ", left - 1, " more times)");
  }
}

bool is_launched() { return std::getenv(kLauncherVariable) && std::getenv("LOCAL_RANK"); }

bool tell_launcher(Fault fault, const std::string& text) {
  const char* descriptor = std::getenv(kLauncherVariable);
  const char* rank = std::getenv("LOCAL_RANK");
  if (!descriptor || !rank) return false;
  std::string note = str(rank, " ", static_cast<int>(fault), " ", text.substr(0, kNoteBytes - 50));
  note.push_back('\0');
  return ::write(std::atoi(descriptor), note.data(), note.size()) == static_cast<ssize_t>(note.size());
}

}  // namespace apus
