// SPDX-License-Identifier: Apache-2.0
// The communicator of NPUs on the simulated node: a library that has HcclCommInitRootInfoConfig, one that lacks it,
// none at all, and a rank that never comes.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstdlib>

#include "devices/ascend/hccl_api.h"
#include "dist/comm_check.h"
#include "dist/world.h"
#include "tests/devices/sim_node.h"
#include "tests/rank_body.h"
#include "tests/refusal.h"

namespace apus {
namespace {
namespace fs = std::filesystem;
using test::Environment;
using test::RankBody;
using test::run_ranks;

TEST(NpuComm, EveryCollectiveIsRightWithNewAndOldLibraries) {
  for (const std::string& path :
       {test::sim_folder("lib"), test::sim_folder("old_hccl") + ":" + test::sim_folder("lib")}) {
    ASSERT_TRUE(fs::exists(test::sim_folder("lib") + "/libhccl.so"));
    const Environment where("LD_LIBRARY_PATH", path);
    for (const int ranks : {2, 3}) {
      const test::Ranks r = run_ranks(ranks, "comm.check", {"npu"});
      EXPECT_EQ(r.code, 0) << path << r.said;
    }
  }
}

const RankBody late("npu_comm.late", [](const auto&) {
  World world({.device = "npu", .timeout_s = 20});
  world.host().barrier();
  if (world.rank() == 1) return std::_Exit(0);
  const std::string text = test::refusal(Fault::Comm, [&] { world.devices().barrier(); });
  for (const char* part : {"rank 0", "HcclAllReduce failed with 9", "timeout", "HCCL_EXEC_TIMEOUT", "--ddp_timeout"})
    test::expect_says(text, part);
});

TEST(NpuComm, ALostRankIsAnErrorAfterTheLimit) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib")), limit("HCCL_EXEC_TIMEOUT", "2");
  const test::Ranks r = run_ranks(2, "npu_comm.late");
  EXPECT_EQ(r.code, 0) << r.said;
}

const RankBody crowded("npu_comm.crowded", [](const auto&) { World({.device = "npu", .timeout_s = 5}); });

TEST(NpuComm, MoreRanksThanDevicesAreRefused) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib")), visible("ASCEND_RT_VISIBLE_DEVICES", "3");
  const test::Ranks r = run_ranks(2, "npu_comm.crowded");
  EXPECT_EQ(r.code, exit_code(Fault::Usage));
  EXPECT_NE(r.said.find("2 ranks run on this machine, but 1 npu devices are visible"), std::string::npos) << r.said;
}

// The library moves bytes and truths, and reduces neither.
const RankBody small_types("npu_comm.small_types", [](const auto&) {
  World world({.device = "npu", .timeout_s = 20});
  const auto there = [&](const at::Tensor& t) { return t.to(world.device().device); };
  const at::Tensor any = there(at::tensor({world.first() ? 1 : 0, 0}, at::kByte).to(at::kBool));
  world.devices().all_reduce(any, Reduce::Max)->wait();
  EXPECT_TRUE(any.to(at::kCPU).equal(at::tensor({1, 0}, at::kByte).to(at::kBool)));
  const at::Tensor bytes = there(at::tensor({100, 3}, at::kByte));
  world.devices().all_reduce(bytes)->wait();
  EXPECT_TRUE(bytes.to(at::kCPU).equal(at::tensor({200, 6}, at::kByte)));
  const at::Tensor mine = there(at::tensor({0}, at::kByte));
  world.devices().reduce_scatter(mine, there(at::tensor({7, 9}, at::kByte)))->wait();
  EXPECT_EQ(mine.item<int64_t>(), world.first() ? 14 : 18);
});

TEST(NpuComm, BytesAreReducedAsWholeNumbers) {
  const Environment where("LD_LIBRARY_PATH", test::sim_folder("lib"));
  const test::Ranks r = run_ranks(2, "npu_comm.small_types");
  EXPECT_EQ(r.code, 0) << r.said;
}

TEST(NpuComm, ConfigurationKeepsWhatTheEnvironmentAsks) {
  const std::vector<std::pair<const char*, uint32_t>> asked{{"strict", 2}, {"true", 1}, {"false", 0}};
  for (const auto& [text, number] : asked) {
    const Environment deterministic("HCCL_DETERMINISTIC", text);
    EXPECT_EQ(ascend::make_comm_config({}, "x").deterministic, number) << text;
  }
}

TEST(NpuComm, OnlyLibrariesThatKnowNamesGetOne) {
  ascend::HcclApi api;
  api.config_capability = [] { return uint32_t{2}; };  // buffer and determinism
  EXPECT_EQ(ascend::make_comm_config(api, "apus").size, 32u);
  api.config_capability = [] { return uint32_t{3}; };  // and names
  const ascend::CommConfig config = ascend::make_comm_config(api, "apus");
  EXPECT_EQ(config.size, sizeof config);
  EXPECT_STREQ(config.name, "apus");
}

}  // namespace
}  // namespace apus
