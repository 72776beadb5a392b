// SPDX-License-Identifier: Apache-2.0
// Collectives with gradients, between real processes: what they give, and that each backward pass is the adjoint:
// summed over ranks, <A x, y> = <x, A' y>.
#include "dist/collective.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include <cstdlib>
#include <functional>

#include "device/agree.h"
#include "dist/world.h"
#include "tests/rank_body.h"

namespace apus {
namespace {

// Small whole numbers, other ones on every rank: their products and sums are exact.
at::Tensor rows_by(int64_t rows, int salt) {
  return at::arange(rows * 3, at::kFloat).mul(7).add(salt * 5).remainder(11).sub(5).view({rows, 3});
}

void expect_adjoint(World& world, const char* name, int64_t rows,
                    const std::function<at::Tensor(const at::Tensor&)>& map) {
  const c10::Device device = world.device().device;
  at::Tensor x = rows_by(rows, world.rank() + 1).to(device).requires_grad_();
  const at::Tensor y = map(x), weight = rows_by(y.size(0), world.rank() + 20).to(device);
  y.backward(weight);
  const double there = (y.detach() * weight).sum().item<double>(), back = (x.detach() * x.grad()).sum().item<double>();
  EXPECT_EQ(sum_over(world.host(), there), sum_over(world.host(), back)) << name;
  EXPECT_GT(sum_over(world.host(), x.grad().abs().sum().item<double>()), 0) << name;
}

const test::RankBody collectives("collective.all", [](const auto& a) {
  World world({.device = a[0], .timeout_s = 60});
  Comm& comm = world.devices();
  const int n = comm.size(), me = comm.rank();
  const auto at_home = [](const at::Tensor& t) { return t.to(at::kCPU); };
  const auto there = [&](const at::Tensor& t) { return t.to(world.device().device); };
  collective::Rows even, uneven, none;  // of each rank; the last has none
  for (int r = 0; r < n; ++r) even.push_back(2), uneven.push_back(r + 1), none.push_back(r + 1 < n ? 2 * r + 1 : 0);
  for (const collective::Rows& rows : {even, uneven, none}) {
    const int64_t mine = rows[static_cast<size_t>(me)];
    int64_t all = 0;
    std::vector<at::Tensor> parts;
    for (int r = 0; r < n; ++r)
      all += rows[static_cast<size_t>(r)], parts.push_back(rows_by(rows[static_cast<size_t>(r)], r));
    EXPECT_TRUE(at::equal(at_home(collective::all_gather(there(rows_by(mine, me)), comm, rows)), at::cat(parts)));
    at::Tensor sum = rows_by(all, 0);
    for (int r = 1; r < n; ++r) sum = sum + rows_by(all, r);
    int64_t begin = 0;
    for (int r = 0; r < me; ++r) begin += rows[static_cast<size_t>(r)];
    EXPECT_TRUE(at::equal(at_home(collective::reduce_scatter(there(rows_by(all, me)), comm, rows)),
                          sum.narrow(0, begin, mine)));
    EXPECT_TRUE(at::equal(at_home(collective::all_reduce(there(rows_by(all, me)), comm)), sum));
    expect_adjoint(world, "all_gather", mine,
                   [&](const at::Tensor& x) { return collective::all_gather(x, comm, rows); });
    expect_adjoint(world, "reduce_scatter", all,
                   [&](const at::Tensor& x) { return collective::reduce_scatter(x, comm, rows); });
    // Every rank sends rank r rows[r] rows, and so gets its own number from each.
    const collective::Rows receive(rows.size(), mine);
    std::vector<at::Tensor> came;
    for (int r = 0; r < n; ++r) came.push_back(rows_by(all, r).narrow(0, begin, mine));
    EXPECT_TRUE(
        at::equal(at_home(collective::all_to_all(there(rows_by(all, me)), comm, rows, receive)), at::cat(came)));
    expect_adjoint(world, "all_to_all", all,
                   [&](const at::Tensor& x) { return collective::all_to_all(x, comm, rows, receive); });
  }
  expect_adjoint(world, "all_reduce", 4, [&](const at::Tensor& x) { return collective::all_reduce(x, comm); });
  for (int root = 0; root < n; ++root) {
    EXPECT_TRUE(at::equal(at_home(collective::broadcast(there(rows_by(4, me)), comm, root)), rows_by(4, root)));
    expect_adjoint(world, "broadcast", 4, [&](const at::Tensor& x) { return collective::broadcast(x, comm, root); });
  }
  // Results that are known already are given back, and their gradients go the same ways.
  const auto known = [&](int64_t rows) { return there(rows_by(rows, 90)); };
  const int64_t own_rows = uneven[static_cast<size_t>(me)], all_rows = static_cast<int64_t>(n) * (n + 1) / 2;
  for (const bool scattered : {false, true}) {
    const at::Tensor x = there(rows_by(all_rows, me)).requires_grad_(),
                     other = there(rows_by(all_rows, me)).requires_grad_();
    const at::Tensor result = known(scattered ? own_rows : all_rows);
    const at::Tensor y = scattered ? collective::reduce_scatter(x, comm, uneven, result)
                                   : collective::all_reduce(x, comm, result),
                     made = scattered ? collective::reduce_scatter(other, comm, uneven)
                                      : collective::all_reduce(other, comm);
    EXPECT_TRUE(at::equal(at_home(y), at_home(known(y.size(0)))));
    const at::Tensor weight = there(rows_by(y.size(0), me + 20));
    y.backward(weight), made.backward(weight);
    EXPECT_TRUE(at::equal(at_home(x.grad()), at_home(other.grad())));
  }
  // bf16: one rank holds 256, the others 1. In bf16 itself 256 + 1 = 256, so only a sum in f32 is right.
  const at::Tensor b =
      there(at::full({static_cast<int64_t>(n) * (n + 1) / 2, 1}, me == 0 ? 256.0 : 1.0, at::kBFloat16));
  const at::Tensor own = at_home(collective::reduce_scatter(b, comm, uneven));
  EXPECT_TRUE(at::equal(own, at::full(own.sizes(), 256.0 + n - 1, at::kFloat).to(at::kBFloat16)));
  world.host().barrier();
});

TEST(Collective, IsRightAndItsBackwardPassItsAdjoint) {
  const char* device = std::getenv("APUS_TEST_DEVICE");
  for (const int ranks : {2, 3}) {
    const test::Ranks r = test::run_ranks(ranks, "collective.all", {device && *device ? device : "cpu"});
    EXPECT_EQ(r.code, 0) << r.said;
  }
}

}  // namespace
}  // namespace apus
