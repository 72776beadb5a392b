// SPDX-License-Identifier: Apache-2.0
// Whether and how fast the ranks reach each other: every collective checked for its result and timed, and every pair.
#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "device/comm.h"

namespace apus {

struct CommCheckSpec {
  c10::Device device = c10::Device(c10::kCPU);
  int64_t bytes = 16 << 20;  // of the large messages
  int repeats = 5;
  bool pairs = true;
};

struct CollectiveReport {
  // Wrong: the first rank, element and values that are not as they should be; "" if there are none.
  std::string name, wrong;
  double latency_us = 0;  // of 8 bytes
  // What each rank sends and receives through its link, in 1e9 bytes a second.
  double gb_s = 0;
};

struct CommReport {
  std::vector<CollectiveReport> collectives;
  std::vector<std::vector<double>> pair_us, pair_gb_s;  // [one][other], 0 on the diagonal; empty: not asked
  bool sound() const;
};

// On all ranks together; the report is the same on all. `comm` carries tensors of the device, `host` those of the host.
// A rank that does not answer within the communicator's time limit is named by Fault::Comm.
CommReport run_comm_check(Comm& comm, Comm& host, const CommCheckSpec& spec);

Json comm_report_json(const CommReport& report);
std::string comm_report_text(const CommReport& report);

}  // namespace apus
