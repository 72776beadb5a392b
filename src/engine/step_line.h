// SPDX-License-Identifier: Apache-2.0
// The line between an engine and the ranks that hold the other parts of its model: the first rank schedules, and tells
// the others each forward pass, each use of the head and whatever changes the model. They do the same (Follower).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/comm.h"
#include "engine/cache_size.h"
#include "engine/step_numbers.h"

namespace apus {

struct Order {
  // Stay: nothing is to be done, and nobody is lost. Rest: nothing will be told until the ranks meet here again.
  enum class Kind : int64_t { Stay, Step, Head, LoadAdapter, UnloadAdapter, Sleep, Wake, Rest, End };
  Kind kind = Kind::Stay;
  StepNumbers step;           // Step
  std::vector<int64_t> rows;  // Head: of the last step's hidden states
  bool routed = false;        // Head: which adapter each of these goes through
  AdapterRoutes routes;
  std::string adapter, folder;
  int64_t level = 0;  // Sleep
};
// Pure; decode_order() throws Fault::Comm for numbers that are no order.
std::vector<int64_t> encode_order(const Order& order);
Order decode_order(const std::vector<int64_t>& words);

class StepLine {
 public:
  // Of all ranks that hold parts of one copy of the model; for tensors on the host. The first one leads.
  explicit StepLine(std::unique_ptr<Comm> ranks) : ranks_(std::move(ranks)) {}
  bool leads() const { return ranks_->rank() == 0; }
  Comm& ranks() { return *ranks_; }  // while nobody tells anything
  void tell(const Order& order);     // of the leader
  Order hear();
  bool all(bool here);  // did all ranks succeed? All call it together
  CacheSize least(const CacheSize& here);

 private:
  void pass_on(std::vector<int64_t>& words);
  std::unique_ptr<Comm> ranks_;
};

}  // namespace apus
