// SPDX-License-Identifier: Apache-2.0
// Layers with a state whose tokens ranks share out, against one process: in a ring, by heads alone and by both, over
// packed sequences of which some are shorter than what a convolution looks back.
#include "nn/state_share.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>

#include <mutex>

#include "tests/fake_mesh.h"
#include "tests/ops/devices.h"

namespace apus {
namespace {

using ops::test::device;
using ops::test::expect_close;
using ops::test::normal;
using ops::test::placed;

struct ShareCase {
  const char* name;
  int groups, sharers;
  int64_t heads = 4, key_heads = 2;
  bool key_decays = false, shares = true;
};
void PrintTo(const ShareCase& c, std::ostream* out) { *out << c.name; }

class StateShareTest : public ::testing::TestWithParam<ShareCase> {
 protected:
  static constexpr int64_t kTokens = 55, kKey = 3, kValue = 5;
  const std::vector<int32_t> lengths_{13, 1, 30, 3, 8};
  const std::vector<int64_t> wide_lengths_{13, 1, 30, 3, 8};

  // Fake ranks are threads, and a device has one thread for gradients: theirs are compared on a processor.
  static bool learns() { return device().device.is_cpu(); }
  static at::ScalarType type() { return learns() ? at::kDouble : at::kFloat; }

  using Tensors = std::vector<at::Tensor>;
  using Shapes = std::vector<std::vector<int64_t>>;
  static Tensors leaves(const Shapes& shapes) {
    Tensors out;
    for (size_t i = 0; i < shapes.size(); ++i)
      out.push_back(placed(normal(shapes[i], static_cast<int>(i) + 1), type()).requires_grad_(learns()));
    return out;
  }

  // `shared` is given a rank's part of the first `of_tokens` inputs, and the whole of the others.
  void compare(const Shapes& shapes, size_t of_tokens, const std::function<at::Tensor(const Tensors&)>& one,
               const std::function<at::Tensor(const TokenShare&, const Tensors&)>& shared) const {
    const ShareCase& c = GetParam();
    const at::NoGradGuard none;
    at::GradMode::set_enabled(learns());
    const Tensors x = leaves(shapes);
    const at::Tensor y = one(x), grad = placed(normal(y.sizes(), 9), type());
    if (learns()) y.backward(grad);
    std::mutex mutex;
    Tensors found, sums(x.size());
    test::on_fake_ranks({.cp = c.groups * c.sharers}, c.groups * c.sharers, [&](MeshView& mesh) {
      at::GradMode::set_enabled(learns());
      const TokenShare share(mesh.comm(Axis::Cp), lengths_, c.groups, device().device);
      const Tensors own = leaves(shapes);
      Tensors in = own;
      for (size_t i = 0; i < of_tokens; ++i) in[i] = share.narrowed(own[i]);
      const at::Tensor out = shared(share, in), whole = share.gathered(out);
      if (learns()) out.backward(share.narrowed(grad));
      const std::lock_guard lock(mutex);
      found.push_back(whole.detach());
      for (size_t i = 0; learns() && i < own.size(); ++i)
        sums[i] = sums[i].defined() ? sums[i] + own[i].grad() : own[i].grad();
    });
    const double limit = learns() ? 1e-12 : 1e-5;
    for (const at::Tensor& whole : found) expect_close(whole, ops::test::exact(y), limit, "out");
    for (size_t i = 0; learns() && i < x.size(); ++i)
      expect_close(sums[i], ops::test::exact(x[i].grad()), limit, "gradient " + std::to_string(i));
  }
};

TEST_P(StateShareTest, ScansAsOneProcess) {
  const ShareCase& c = GetParam();
  const int64_t n = c.heads, g = c.key_heads;
  Shapes shapes{{kTokens, g, kKey}, {kTokens, g, kKey}, {kTokens, n, kValue}, {kTokens, n}};
  if (c.key_decays) shapes[3].push_back(kKey);
  if (c.shares) shapes.push_back({kTokens, n});
  const auto inputs = [&](const Tensors& x) {
    ops::StateInputs in{x[0], x[1], x[2], -at::softplus(x[3])};
    if (c.shares) in.share_TN = at::sigmoid(x[4]);
    return in;
  };
  compare(
      shapes, shapes.size(), [&](const Tensors& x) { return ops::state_scan(inputs(x), wide_lengths_); },
      [&](const TokenShare& share, const Tensors& x) {
        const ScanShare scan(share, inputs(x));
        const ops::StateInputs all = scan.all_tokens(inputs(x));
        return scan.own_tokens(scan.none() ? all.v_TNV : ops::state_scan(all, wide_lengths_));
      });
}

TEST_P(StateShareTest, LooksBackAsOneProcess) {
  for (const int64_t taps : {1, 4, 9})
    compare(
        {{kTokens, 6}, {6, taps}, {6}}, 1,
        [&](const Tensors& x) { return ops::causal_conv(x[0], x[1], x[2], wide_lengths_); },
        [&](const TokenShare& share, const Tensors& x) {
          return convolved_with_those_before(share, x[0], x[1], x[2]);
        });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, StateShareTest,
    ::testing::Values(ShareCase{.name = "by_heads", .groups = 1, .sharers = 2},
                      ShareCase{.name = "in_a_ring", .groups = 3, .sharers = 1, .shares = false},
                      ShareCase{.name = "by_both", .groups = 2, .sharers = 2, .key_heads = 1},
                      ShareCase{.name = "fewer_heads", .groups = 4, .sharers = 1, .heads = 3, .key_heads = 3},
                      ShareCase{.name = "decays_of_keys", .groups = 2, .sharers = 1, .key_decays = true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace apus
