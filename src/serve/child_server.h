// SPDX-License-Identifier: Apache-2.0
// Another program's server as a child process: started, watched, ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace apus {

class ChildServer {
 public:
  // The program and its arguments; Fault::Io when it cannot start.
  explicit ChildServer(const std::vector<std::string>& words);
  ~ChildServer();  // SIGTERM to it and its children, SIGKILL after ten seconds
  ChildServer(const ChildServer&) = delete;
  ChildServer& operator=(const ChildServer&) = delete;
  std::optional<std::string> ended();  // how, once it has

 private:
  pid_t process_ = -1;
  std::optional<std::string> how_;
};

}  // namespace apus
