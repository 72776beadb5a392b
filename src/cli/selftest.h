// SPDX-License-Identifier: Apache-2.0
// `apus doctor --selftest`: a device held against the processor, operator by operator, in a few training steps and in
// decoded answers; and a file with all that was seen, to be sent to who can read it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "doctor/checks.h"

namespace apus {

struct SelfTest {
  std::string device;            // "npu:0"
  double limit_s = 300;          // of each part, after which it counts as hanging
  std::filesystem::path folder;  // for its model, rows and runs; removed afterwards
};

// What it found, for people; `report` gets the same in numbers.
std::vector<Check> selftest(const SelfTest& spec, Json& report);

// What run/selftest.cpp is asked and answers.
struct OperatorTrial {
  std::string device;
  Json* report;
};

}  // namespace apus
