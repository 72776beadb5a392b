// SPDX-License-Identifier: Apache-2.0
#include "device/trace.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/scratch_folder.h"

namespace apus {
namespace {

std::string traced(const std::string& events) { return R"({"traceEvents": [)" + events + "]}"; }
std::string event(const std::string& kind, const std::string& name, int thread, double begin, double time) {
  return str(R"({"ph": "X", "cat": ")", kind, R"(", "name": ")", name, R"(", "tid": )", thread, R"(, "ts": )", begin,
             R"(, "dur": )", time, "}");
}

TEST(Trace, TheHostsOperatorsDoNotCountWhatTheyCall) {
  const auto all = traced_operators(
      traced(event("cpu_op", "outer", 1, 0, 10000) + "," + event("cpu_op", "inner", 1, 1000, 3000) + "," +
             event("cpu_op", "inner", 1, 5000, 2000) + "," + event("cpu_op", "other", 2, 2000, 4000)));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "inner");
  EXPECT_DOUBLE_EQ(all[0].milliseconds, 5);
  EXPECT_EQ(all[0].calls, 2);
  EXPECT_DOUBLE_EQ(all[1].milliseconds + all[2].milliseconds, 9) << "outer has 5 left, the other thread's has 4";
  EXPECT_EQ(all[1].name, "outer");
}

TEST(Trace, ADevicesKernelsStandAlone) {
  const auto all =
      traced_operators(traced(event("cpu_op", "asks", 1, 0, 9000) + "," + event("kernel", "does", 7, 100, 20) +
                              R"(,{"ph": "i", "cat": "Trace", "name": "mark", "ts": 1})"));
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].name, "does");
}

TEST(Trace, WritesAFileWithWhatWasDone) {
  const ScratchFolder scratch("apus-trace-test");
  Trace trace(at::kCPU);
  for (int i = 0; i < 3; ++i) at::mm(at::ones({8, 8}), at::ones({8, 8}));
  const auto all = trace.finish(scratch.path() / "trace.json");
  const auto found = std::find_if(all.begin(), all.end(), [](const TracedOperator& o) { return o.name == "aten::mm"; });
  ASSERT_NE(found, all.end());
  EXPECT_EQ(found->calls, 3);
  EXPECT_GT(found->milliseconds, 0);
}

}  // namespace
}  // namespace apus
