// SPDX-License-Identifier: Apache-2.0
// The parts of `apus doctor` that compute: the trial of each device, and the operators that its self-test tries.
#include "cli/selftest.h"

#include <gtest/gtest.h>

#include <set>

#include "cli/doctor.h"
#include "device/device.h"
#include "ops/choices.h"
#include "run/runner.h"
#include "run/selftest_cases.h"

namespace apus {
namespace {

// Also on processors whose bf16 products of libtorch are rounded at every partial sum.
TEST(SelfTest, TheTrialHoldsOurOwnProducts) {
  std::vector<Check> checks;
  const DeviceTrials request{&checks};
  ASSERT_EQ(apus_run_command("doctor", &request), 0);
  bool computed = false;
  for (const Check& check : checks) {
    if (check.what != "cpu computes") continue;
    computed = true;
    EXPECT_EQ(check.state, Check::State::Ok) << check.hint;
    EXPECT_NE(check.found.find("bf16"), std::string::npos) << check.found;
  }
  EXPECT_TRUE(computed);
}

TEST(SelfTest, EveryOperatorIsTried) {
  std::set<std::string> tried{"embedding_add_rows", "pack_linear",
                              "pack_codes"};  // inside embedding, packed_linear and coded_linear
  for (const OperatorCase& c : operator_cases(16)) tried.insert(c.op);
  for (const OpChoice& op : op_choices(*open_device("cpu").kind)) {
    std::string name = op.op == "low_rank_backward" ? "add_low_rank" : op.op;
    if (const size_t suffix = name.rfind("_backward"); suffix != std::string::npos) name.resize(suffix);
    EXPECT_TRUE(tried.count(name)) << op.op;
  }
}

TEST(SelfTest, TheProcessorIsRight) {
  Json report;
  const OperatorTrial trial{"cpu", &report};
  ASSERT_EQ(apus_run_command("selftest", &trial), 0);
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_GT(report["operators"].size(), 40u);
  for (const Json& row : report["operators"]) EXPECT_TRUE(row["right"].get<bool>()) << row.dump();
}

}  // namespace
}  // namespace apus
