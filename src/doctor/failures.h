// SPDX-License-Identifier: Apache-2.0
// Known failures of the stacks below and beside Apus (assets/knowledge/failures.json), and finding them in a log.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/pattern.h"

namespace apus {

struct Failure {
  std::string id, title, cause;
  std::vector<std::string> remedy;
  int weight = 0;              // how specific: 9 names one cause, 1 is a symptom of many
  std::vector<Pattern> match;  // over one line, any of them
  // For each expression a text in lower case that stands in every line it matches: a fast first test.
  std::vector<std::string> literals;
};
const std::vector<Failure>& known_failures();

struct Finding {
  const Failure* failure = nullptr;
  int64_t line = 0;   // of its first appearance, from 1
  int64_t count = 0;  // lines
  std::string text;   // that line, without control characters
};

struct Explanation {
  std::vector<Finding> findings;         // best first
  std::vector<std::string> error_lines;  // the last lines that speak of an error, when nothing is known
  int64_t lines = 0;
  bool middle_skipped = false;  // of a log larger than what is looked at
};

class LogMatcher {
 public:
  void line(std::string_view text, int64_t number);
  Explanation result() const;  // findings and error lines

 private:
  void piece(const std::string& text, int64_t number);
  void wrapped(const std::string& text, const std::set<size_t>& known, bool near, int64_t number);
  void note(size_t failure, const std::string& text, int64_t number, double bonus);

  std::vector<Finding> findings_;
  std::vector<double> bonus_;  // of each finding: lines that say "Error:" count for more
  std::vector<std::string> errors_;
  // The end of a message that a terminal, or a logger, may have broken over several lines: put together without and
  // with a blank at the breaks; what was found in it; where it begins, and how long its last line is.
  struct {
    std::string tight, loose;
    std::set<size_t> known;
    int64_t number = 0;
    size_t last = 0;
    bool near = false;  // a line of it holds what may be half of a message
  } broken_;
};

// Of a log of any size the first GiB is looked at, and of what is more the last 12 MB. "-" is standard input.
Explanation explain_log(const std::string& path);
Explanation explain_text(std::string_view text);

std::string plain_line(std::string_view text, size_t longest = 4096);  // without terminal codes and control characters
Json to_json(const Explanation& explanation);

}  // namespace apus
