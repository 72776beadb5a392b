// SPDX-License-Identifier: Apache-2.0
// Early signs that a run goes wrong, read off its log lines: what is seen in several lines in a row is told once, with
// its likely cause and the flags that help.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// Each is of one line; lines without its numbers show nothing. Pure.
bool entropy_collapsed(const Json& line);     // below 0.02 nats a token
bool divergence_ran_away(const Json& line);   // more than 1 nat a token from the reference
bool answers_at_limit(const Json& line);      // nine of ten were cut at their longest length
bool chosen_like_rejected(const Json& line);  // both are as likely, to six digits
bool engine_disagrees(const Json& line);      // by more than 0.1 nats a token, on average, with the trainer
// Every answer of an environment ended in its first turn, and the mean reward is not above one half: what is right may
// need no second one.
bool never_replied_to(const Json& line);

class EarlySigns {
 public:
  static constexpr int kLines = 3;
  // What is to be said of the line: of signs that were in each of the last kLines lines.
  std::vector<std::string> see(const Json& line);

 private:
  std::map<std::string, int> in_a_row_;
};

}  // namespace apus
