// SPDX-License-Identifier: Apache-2.0
// The machine this program runs on.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "devices/cpu/host.h"
#include "doctor/host.h"

extern char** environ;

namespace apus {

namespace {
constexpr size_t kMostOutput = size_t{1} << 20;

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> all;
  for (char** each = environ; each && *each; ++each) {
    const std::string text = *each;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

// Output until the end or the limit. What comes after the first megabyte is read and dropped,
// so that the child can end.
std::string read_until(int from, double limit_s, bool* in_time) {
  std::string output;
  const Stopwatch watch;
  char buffer[16384];
  for (*in_time = true;;) {
    const double left = limit_s - watch.seconds();
    struct pollfd waiting {
      from, POLLIN, 0
    };
    if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left * 1000) + 1) == 0) {
      *in_time = false;
      return output;
    }
    const ssize_t got = ::read(from, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return output;
    if (output.size() < kMostOutput) output.append(buffer, static_cast<size_t>(got));
  }
}

Ran run_file(const std::filesystem::path& program, const std::vector<std::string>& arguments, double limit_s) {
  Pipe pipe;
  if (!pipe.is_open()) return {127, "no pipe"};
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipe.write_end.number(), 1);
  posix_spawn_file_actions_adddup2(&files, pipe.write_end.number(), 2);
  posix_spawnattr_t how;
  posix_spawnattr_init(&how);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);  // so that it can be ended with its children
  pid_t child = 0;
  const int error = ::posix_spawn(&child, words[0].c_str(), &files, &how, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  pipe.write_end.reset();
  Ran ran{127, "it cannot be started"};
  if (error == 0) {
    bool in_time = true;
    ran.output = read_until(pipe.read_end.number(), limit_s, &in_time);
    if (!in_time) ::kill(-child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    ran.code = !in_time ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return ran;
}

bool port_is_free(int port) {
  const Descriptor s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!s.is_open()) return true;  // not to be known
  const int yes = 1;
  ::setsockopt(s.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port)),
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return ::bind(s.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 || errno != EADDRINUSE;
}

std::optional<Space> space_of(const std::filesystem::path& path) {
  struct statvfs s {};
  if (::statvfs(path.c_str(), &s) != 0) return std::nullopt;
  const auto unit = static_cast<int64_t>(s.f_frsize);
  return Space{unit * static_cast<int64_t>(s.f_blocks), unit * static_cast<int64_t>(s.f_bavail)};
}
}  // namespace

Host this_machine(const std::filesystem::path& root) {
  std::error_code code;
  require(std::filesystem::is_directory(root, code), Fault::Usage, "--root ", root.string(), " is no folder");
  Host host;
  host.root = root;
  host.env = environment();
  host.program = std::filesystem::read_symlink("/proc/self/exe", code);
  host.memory_total = cpu::memory_total(), host.memory_free = cpu::memory_free();
  host.usable_cores = cpu::usable_cores();
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
    host.open_files = files.rlim_cur == RLIM_INFINITY ? INT64_MAX : static_cast<int64_t>(files.rlim_cur);
  host.now = static_cast<int64_t>(std::time(nullptr));
  host.run_file = run_file;
  host.space_of = space_of;
  host.port_is_free = port_is_free;
  return host;
}

}  // namespace apus
