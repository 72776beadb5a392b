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
  // The sums over all ranks so far, which stay, as {name: [sum, count]}; and those of a run that is gone on with, given
  // to one rank.
  Json sums(Comm& ranks) const;
  void restore(const Json& sums);
  void clear() { sums_.clear(), earlier_.clear(); }

 private:
  std::map<std::string, Ratio> sums_;
  std::map<std::string, std::pair<double, double>> earlier_;
};

}  // namespace apus
