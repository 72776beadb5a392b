// SPDX-License-Identifier: Apache-2.0
// The options of `apus doctor`; the part that computes on the devices is run/doctor.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/option_groups.h"
#include "device/topology.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h

struct DoctorOptions {
  RunOptions common;
  // A log to explain instead of looking at the machine; "-": standard input.
  std::string explain;
  bool json = false;
  bool comm = false;                          // measure the collectives between all devices
  bool selftest = false;                      // hold a device against the processor
  std::string report = "apus-selftest.json";  // what the self-test saw
  std::string device = "auto";                // whose: for comm a kind, for the self-test one device
  int64_t comm_ranks = 0;                     // processes for comm; 0: one a device, two on the cpu
  double comm_timeout = 60;                   // seconds without a sign of a rank
  // Compute on each device; absent: unless another machine is looked at.
  std::optional<bool> trial;
  int64_t trial_timeout = 300;  // seconds
  std::string root = "/";       // look at the machine whose files are here
  std::string output_dir = "output";

  void fields(OptionTable& v);
  void check() const;
  void rehearse(Rehearsal& r) const;
};

// What run/doctor.cpp is asked and answers.
struct DeviceTrials {
  std::vector<Check>* checks;
};

}  // namespace apus
