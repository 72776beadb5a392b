// SPDX-License-Identifier: Apache-2.0
// Plain data about devices: their links, their health, whether the software below is sound. No tensor library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

struct Topology {
  std::vector<std::string> names;  // one per device
  // [i][j]: "X" on the diagonal, "HCCS", "NV18", "PXB", "SYS", ...
  std::vector<std::vector<std::string>> link;
  std::vector<std::string> cpu_affinity;  // "0-23", may be empty
  std::vector<std::pair<std::string, std::string>> legend;
};

struct Status {
  int index = 0;
  std::string name, health;                                   // health: "OK", "Warning", "Alarm", ...
  double power_w = -1, temperature_c = -1, utilisation = -1;  // -1: not known; utilisation in percent
  int64_t memory_total = -1, memory_used = -1;                // bytes
  std::string driver;
};

struct Check {
  enum class State { Ok, Warn, Fail, Skipped };
  std::string what;  // "CANN toolkit"
  State state = State::Ok;
  std::string found, wanted, hint;  // hint: what to do
};

}  // namespace apus
