// SPDX-License-Identifier: Apache-2.0
// The communicator of NPUs on the simulated node: a library that has HcclCommInitRootInfoConfig, one that lacks it,
// none at all, and a rank that never comes.
#include <cstdlib>

#include "dist/comm_check.h"
#include "dist/world.h"
#include "tests/paths.h"
#include "tests/rank_body.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;
using test::RankBody;
using test::run_ranks;

// Libraries are found by the environment in which a process starts.
struct Environment {
  Environment(const char* name, const std::string& value) : name(name) {
    if (const char* old = std::getenv(name)) before = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() { before.empty() ? ::unsetenv(name) : ::setenv(name, before.c_str(), 1); }
  const char* name;
  std::string before;
};
std::string sim(const char* folder) { return (test::binary_dir() / "tests/sim" / folder).string(); }

TEST(NpuComm, EveryCollectiveIsRightWithNewAndOldLibraries) {
  for (const std::string& path : {sim("lib"), sim("old_hccl") + ":" + sim("lib")}) {
    ASSERT_TRUE(fs::exists(sim("lib") + "/libhccl.so"));
    const Environment where("LD_LIBRARY_PATH", path);
    for (const int ranks : {2, 3}) {
      const test::Ranks r = run_ranks(ranks, "comm.check", {"npu"});
      EXPECT_EQ(r.code, 0) << path << r.said;
    }
  }
}

const RankBody late("npu_comm.late", [](const auto&) {
  World world({.device = "npu", .timeout_s = 3});
  world.host().barrier();
  if (world.rank() == 1) return std::_Exit(0);
  const std::string text = test::refusal(Fault::Comm, [&] { world.devices().barrier(); });
  for (const char* part : {"rank 0", "HcclAllReduce failed with 9", "timeout", "HCCL_EXEC_TIMEOUT", "--ddp_timeout"})
    test::expect_says(text, part);
});

TEST(NpuComm, ALostRankIsAnErrorAfterTheLimit) {
  const Environment where("LD_LIBRARY_PATH", sim("lib")), limit("HCCL_EXEC_TIMEOUT", "2");
  const test::Ranks r = run_ranks(2, "npu_comm.late");
  EXPECT_EQ(r.code, 0) << r.said;
}

const RankBody crowded("npu_comm.crowded", [](const auto&) { World({.device = "npu", .timeout_s = 5}); });

TEST(NpuComm, MoreRanksThanDevicesAreRefused) {
  const Environment where("LD_LIBRARY_PATH", sim("lib")), visible("ASCEND_RT_VISIBLE_DEVICES", "3");
  const test::Ranks r = run_ranks(2, "npu_comm.crowded");
  EXPECT_EQ(r.code, exit_code(Fault::Usage));
  EXPECT_NE(r.said.find("2 ranks run on this machine, but 1 npu devices are visible"), std::string::npos) << r.said;
}

}  // namespace
}  // namespace apus
