// SPDX-License-Identifier: Apache-2.0
// A program of any language that is talked to over its input and output: rewards, environments. What it may take and
// print is bounded by whoever talks to it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/descriptor.h"

namespace apus {

class Program {
 public:
  // `command` is run by /bin/sh, in a process group of its own, so that it is ended with its children. `role` is what
  // errors call it: "reward program".
  Program(const std::string& command, const std::string& role);
  ~Program() { wait(true); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  enum class Heard { Enough, End, Late, TooMuch };
  // Gives it `text` and adds what it prints to `printed`, until that is enough(), or it has closed its output. Without
  // `enough` its input is closed behind the text. TooMuch: more than `most` bytes are there. What it has not taken when
  // it is Late, the next talk goes on with.
  Heard talk(const std::string& text, double seconds, size_t most, const std::function<bool()>& enough = {});

  // From another thread: talk() asks again whether it is enough().
  void nudge();

  // Its wait status. `now`: it is ended first.
  int wait(bool now);
  std::string last_words() const;  // "; it said: ..." of the end of its error output, or nothing

  std::string printed;
  std::function<void(const std::string&)> overhears;  // is told what it says on its error output, as it comes

 private:
  void give();
  void hear();  // on its error output
  static void take(Descriptor& from, std::string& into);
  Pipe out_, errors_, nudges_;
  Descriptor input_;
  pid_t child_ = -1;
  int status_ = 0;
  std::string said_, given_;  // of given_ it has taken so many bytes:
  size_t taken_ = 0;
};

std::string how_it_ended(int wait_status);  // "ended with code 3"

std::optional<std::filesystem::path> program_on_path(const std::string& name);

// "python3 /a/reward.py --strict" -> "reward.py": what a command is called in logs.
std::string program_name(const std::string& command);

}  // namespace apus
