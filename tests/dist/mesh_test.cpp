// SPDX-License-Identifier: Apache-2.0
// Communicators along a mesh's axes, between real processes.
#include "dist/mesh.h"

#include <ATen/ops/full.h>

#include <cstdlib>

#include "tests/rank_body.h"

namespace apus {
namespace {

const test::RankBody mesh_sums("mesh.sums", [](const auto& arguments) {
  World world({.device = arguments[0], .timeout_s = 60});
  Mesh mesh(world, {.tp = 2});
  const auto sum = [&](Comm& comm, c10::Device device) {
    const at::Tensor t = at::full({3}, world.rank() + 1, at::kFloat).to(device);
    comm.all_reduce(t)->wait();
    return t.to(at::kCPU)[1].item<float>();
  };
  // dp_replicate 2 x tp 2: lines {0, 1}, {2, 3} along tp, {0, 2}, {1, 3} along the data axes.
  const float pair[] = {1 + 2, 1 + 2, 3 + 4, 3 + 4}, data[] = {1 + 3, 2 + 4, 1 + 3, 2 + 4};
  EXPECT_EQ(sum(mesh.comm(Axis::Tp), mesh.device()), pair[world.rank()]);
  EXPECT_EQ(sum(mesh.host(Axis::Tp), at::kCPU), pair[world.rank()]);
  EXPECT_EQ(sum(mesh.comm(kDataAxes), mesh.device()), data[world.rank()]);
  EXPECT_EQ(mesh.comm(Axis::Tp).rank(), mesh.rank(Axis::Tp));
  EXPECT_EQ(mesh.comm(kDataAxes).size(), 2);
  // Sets of the same ranks share one; all ranks are the world; none is this rank alone.
  EXPECT_EQ(&mesh.comm(kDataAxes), &mesh.comm(Axis::DpReplicate));
  EXPECT_EQ(&mesh.comm({Axis::Tp, Axis::DpReplicate}), &world.devices());
  EXPECT_EQ(&mesh.host({Axis::Tp, Axis::DpReplicate}), &world.host());
  EXPECT_EQ(sum(mesh.comm(Axis::Pp), mesh.device()), world.rank() + 1.0f);
  world.host().barrier();
});

TEST(Mesh, EveryAxisHasItsCommunicator) {
  const char* device = std::getenv("APUS_TEST_DEVICE");
  const test::Ranks r = test::run_ranks(4, "mesh.sums", {device && *device ? device : "cpu"});
  EXPECT_EQ(r.code, 0) << r.said;
}

TEST(Mesh, WithoutSizesAllRanksAreCopies) {
  World world({.device = "cpu"}, [](const char*) { return std::nullopt; });
  Mesh mesh(world);
  EXPECT_EQ(mesh.size(kDataAxes), 1);
  EXPECT_EQ(&mesh.comm(kDataAxes), &world.devices());
}

}  // namespace
}  // namespace apus
