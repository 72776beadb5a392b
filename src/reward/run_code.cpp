// SPDX-License-Identifier: Apache-2.0
#include "reward/run_code.h"

#include <sys/wait.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/assets.h"
#include "base/error.h"
#include "base/json.h"
#include "base/program.h"

namespace apus {

namespace {

constexpr size_t kPrintedBytes = 1 << 20;
constexpr double kStartSeconds = 10;  // that Python may take before the program begins

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

// Not to be guessed by a program, so that printing it is no proof of anything else.
std::string random_mark() {
  std::random_device random;
  return str("mark-", random(), "-", random());
}

}  // namespace

CodeRun run_python(const std::string& program, const CodeLimits& limits) {
  const std::string confined = random_mark(), mark = random_mark();
  const Json task = {{"program", program},
                     {"seconds", static_cast<int64_t>(std::ceil(limits.seconds))},
                     {"memory", limits.memory},
                     {"confined", confined},
                     {"mark", mark}};
  Program python("exec python3 -I -B -c " + quoted(std::string(asset("eval/confined.py"))), "program of an answer");
  const Program::Heard heard = python.talk(json_text(task) + "\n", limits.seconds + kStartSeconds, kPrintedBytes);
  const int status = python.wait(heard != Program::Heard::End);
  const std::string& printed = python.printed;
  require(printed.rfind(confined + "\n", 0) == 0, Fault::Io, "the program of an answer was not run: python3 ",
          how_it_ended(status), python.last_words());
  std::string own = printed.substr(confined.size() + 1);
  if (heard == Program::Heard::Late) return {false, str("not done after ", limits.seconds, " s"), own};
  if (heard == Program::Heard::TooMuch) return {false, str("prints more than ", kPrintedBytes, " bytes"), own};
  const bool ended = WIFEXITED(status) && WEXITSTATUS(status) == 0 && own.ends_with(mark + "\n");
  if (ended) return {true, "", own.substr(0, own.size() - mark.size() - 1)};
  const std::string words = python.last_words();
  return {false, how_it_ended(status) + words.substr(0, words.find_last_not_of('\n') + 1), own};
}

std::string code_in(const std::string& answer, const std::string& name) {
  const std::string fence = "```";
  std::vector<std::string> blocks;
  for (size_t at = answer.find(fence); at != std::string::npos;) {
    const size_t line = answer.find('\n', at);
    if (line == std::string::npos) break;
    const size_t end = answer.find(fence, line);
    blocks.push_back(answer.substr(line + 1, end == std::string::npos ? end : end - line - 1));
    at = end == std::string::npos ? end : answer.find(fence, end + fence.size());
  }
  for (auto block = blocks.rbegin(); block != blocks.rend(); ++block)
    if (block->find("def " + name) != std::string::npos) return *block;
  return blocks.empty() ? answer : blocks.front();
}

}  // namespace apus
