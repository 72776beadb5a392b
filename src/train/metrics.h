// SPDX-License-Identifier: Apache-2.0
// Quotients of sums, gathered over micro-batches without waiting for the device, and read when a line is logged.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "device/comm.h"
#include "train/algorithm.h"

namespace apus {

class Metrics {
 public:
  void add(const std::map<std::string, Ratio>& ratios);
  // name -> sum / count over all ranks; names with count 0 are left out.
  Json take(Comm& ranks, const std::string& prefix = "");
  void clear() { sums_.clear(); }

 private:
  std::map<std::string, Ratio> sums_;
};

}  // namespace apus
