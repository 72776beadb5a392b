// SPDX-License-Identifier: Apache-2.0
// A server that the benchmark starts, waits for and stops.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace apus::bench {

class ServerProcess {
 public:
  // Its output goes to `log`. Waits until GET /health of `url` says 200.
  ServerProcess(std::vector<std::string> command, std::string url, const std::string& log);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;
  const std::string& url() const { return url_; }
  pid_t pid() const { return pid_; }

 private:
  const std::string url_;
  pid_t pid_ = -1;
};

double resident_mib(pid_t pid);
// Processor time of its threads for HTTP, JSON and text; -1: not known.
double serving_seconds(pid_t pid);

}  // namespace apus::bench
