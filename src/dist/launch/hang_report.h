// SPDX-License-Identifier: Apache-2.0
// Who waits for whom in what, when ranks have waited too long: made of what each of them told of its collectives. No
// tensor library.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

// A collective, a send or a receive that a rank has begun.
struct CommCall {
  std::string group, op;   // "host", "all_reduce"
  std::vector<int> peers;  // the other ranks that must come to it
  // What `number` counts from 1, alike on all of them: the group's collectives; what one of it sends to another.
  std::string counter;
  int64_t number = 0;
  int64_t bytes = 0;
  std::string text() const;
};

struct RankCalls {
  int rank = 0;
  bool heard = true;                     // false: it has told nothing for a while, what follows is its last word
  std::string where;                     // "step 12"
  std::vector<CommCall> waits, last;     // what it waits in; what it ended last, newest first
  std::map<std::string, int64_t> begun;  // by counter: the last number
};

Json to_json(const RankCalls& calls);
RankCalls rank_calls(const Json& told);  // Fault::Comm when it is not of that form

// A line for each rank, or for several that do the same, and for whom all wait in the end.
std::string hang_report(const std::vector<RankCalls>& ranks);

}  // namespace apus
