// SPDX-License-Identifier: Apache-2.0
#include "server_process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "stream_client.h"

namespace apus::bench {

ServerProcess::ServerProcess(std::vector<std::string> command, std::string url, const std::string& log)
    : url_(std::move(url)) {
  std::vector<char*> argv;
  for (auto& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = ::fork();
  require(pid_ >= 0, Fault::Io, "no process can be started");
  if (pid_ == 0) {
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  for (const double begin = now(); now() - begin < 300; std::this_thread::sleep_for(std::chrono::milliseconds(100))) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      break;
    }
    if (Connection(address_of(url_), 5).get("/health").status == 200) return;
  }
  if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  fail(Fault::Io, command[0], " did not come up; its output is in ", log);
}

ServerProcess::~ServerProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGTERM);
  for (const double begin = now(); now() - begin < 30; std::this_thread::sleep_for(std::chrono::milliseconds(50)))
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

double resident_mib(pid_t pid) {
  if (pid <= 0) return 0;
  std::ifstream statm("/proc/" + std::to_string(pid) + "/statm");
  double pages = 0;
  statm >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

double serving_seconds(pid_t pid) {
  if (pid <= 0) return -1;
  double ticks = -1;
  std::error_code code;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", code)) {
    std::string all;
    std::getline(std::ifstream(task.path() / "stat"), all, '\0');
    const size_t name = all.find('('), end = all.rfind(')');
    if (end == std::string::npos || !all.substr(name).starts_with("(serve-")) continue;
    std::istringstream rest(all.substr(end + 1));  // utime and stime are the 12th and 13th words from here
    std::string skipped;
    for (int i = 0; i < 11; ++i) rest >> skipped;
    double user = 0, system = 0;
    rest >> user >> system;
    ticks = std::max(ticks, 0.0) + user + system;
  }
  return ticks < 0 ? -1 : ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace apus::bench
