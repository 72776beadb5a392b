// SPDX-License-Identifier: Apache-2.0
// A server as a child process, another program's or a copy of this one's: started, watched, ended.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace apus {

constexpr double kServerStartSeconds = 3600;  // until it must answer: large models are read from slow disks

class ChildServer {
 public:
  struct Spec {
    std::vector<std::string> words;  // the program, by its name on PATH or its path, and its arguments
    std::string program = {};        // where it is in truth; empty: by its word
    // Variables that it gets beside ours; nothing: one of ours that it does not get.
    std::map<std::string, std::optional<std::string>> environment = {};
    std::filesystem::path output = {};  // a file; empty: where ours goes
    std::vector<int> cores = {};        // that it runs on; empty: all of ours
  };
  explicit ChildServer(const Spec& spec);  // Fault::Io when it cannot start
  ~ChildServer();                          // SIGTERM to it and its children, SIGKILL after ten seconds
  ChildServer(const ChildServer&) = delete;
  ChildServer& operator=(const ChildServer&) = delete;
  std::optional<std::string> ended();  // how, once it has
  void ask_to_end();                   // SIGTERM

 private:
  pid_t process_ = -1;
  std::optional<std::string> how_;
};

}  // namespace apus
