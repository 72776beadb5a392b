// SPDX-License-Identifier: Apache-2.0
// Mixtures whose experts, or whose experts' matrices, several ranks share out: what they give and their gradients are
// those of one rank. On a mesh of threads.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <mutex>

#include "nn/moe.h"
#include "nn/parts.h"
#include "tests/fake_mesh.h"

namespace apus {
namespace {

constexpr int64_t kWidth = 12, kRows = 17;

std::unique_ptr<MoeMlp> mixture(bool stacked) {
  MixtureNames names;
  if (stacked) names.stacked_gate_up = "experts.gate_up_proj", names.stacked_down = "experts.down_proj";
  return std::make_unique<MoeMlp>(MoeMlp::Spec{.hidden = kWidth,
                                               .ffn = 10,
                                               .experts = 5,
                                               .per_token = 2,
                                               .shared_ffn = stacked ? 0 : 8,
                                               .router = {.normalise = true},
                                               .names = names});
}

using NamedTensors = std::map<std::string, at::Tensor>;

NamedTensors weights_of(Module& module) {
  NamedTensors all;
  module.visit([&](const std::string& name, Param& p) { all[name] = at::randn(p.full) * 0.3; });
  return all;
}

// Of one rank with its rows: what comes out; its gradients go to where they belong in the whole ones.
at::Tensor passed(Module& module, const MoeMlp& mlp, const NamedTensors& whole, const at::Tensor& x_TD,
                  const at::Tensor& dy_TD, NamedTensors& grads, at::Tensor dx_TD) {
  module.visit(
      [&](const std::string& name, Param& p) { p.data = own_part(whole.at(name), p).clone().set_requires_grad(true); });
  const at::Tensor x = x_TD.clone().set_requires_grad(true);
  const at::Tensor y = mlp(x, Step{});
  y.backward(dy_TD);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  module.visit([&](const std::string& name, Param& p) {
    if (p.data.grad().defined()) own_part(grads.at(name), p).add_(p.data.grad());
  });
  dx_TD.add_(x.grad());
  return y.detach();
}

struct RanksCase {
  const char* name;
  MeshSizes sizes;
  int ranks;
  bool stacked = false;
};

class ExpertsOnRanks : public ::testing::TestWithParam<RanksCase> {};

TEST_P(ExpertsOnRanks, GiveWhatOneRankGives) {
  const RanksCase& c = GetParam();
  const auto one = mixture(c.stacked);
  const NamedTensors whole = weights_of(*one);
  const int readers = c.ranks / c.sizes.tp;
  // The last reader has a single token, which leaves experts without any.
  std::vector<int64_t> rows(static_cast<size_t>(readers), kRows);
  rows.back() = 1;
  std::vector<at::Tensor> x, dy, y, dx, dx_of_ranks;
  NamedTensors grads, grads_of_ranks;
  for (const auto& [name, w] : whole) grads[name] = at::zeros_like(w), grads_of_ranks[name] = at::zeros_like(w);
  for (const int64_t n : rows) {
    x.push_back(at::randn({n, kWidth})), dy.push_back(at::randn({n, kWidth}));
    dx.push_back(at::zeros({n, kWidth})), dx_of_ranks.push_back(at::zeros({n, kWidth}));
    y.push_back(passed(*one, *one, whole, x.back(), dy.back(), grads, dx.back()));
  }
  test::on_fake_ranks(c.sizes, c.ranks, [&](MeshView& mesh) {
    const auto mine = mixture(c.stacked);
    mine->place(mesh);
    const auto reader = static_cast<size_t>(mesh.rank(kDataAxes));
    const at::Tensor got = passed(*mine, *mine, whole, x[reader], dy[reader], grads_of_ranks, dx_of_ranks[reader]);
    EXPECT_TRUE(at::allclose(got, y[reader], 1e-5, 1e-5)) << (got - y[reader]).abs().max();
  });
  // Each of the ranks that read the same rows adds what its own copy of the loss does.
  for (size_t r = 0; r < x.size(); ++r)
    EXPECT_TRUE(at::allclose(dx_of_ranks[r], dx[r] * c.sizes.tp, 1e-4, 1e-5)) << "reader " << r;
  for (const auto& [name, grad] : grads)
    EXPECT_TRUE(at::allclose(grads_of_ranks[name], grad * c.sizes.tp, 1e-4, 1e-4))
        << name << (grads_of_ranks[name] - grad * c.sizes.tp).abs().max();
}

INSTANTIATE_TEST_SUITE_P(, ExpertsOnRanks,
                         ::testing::Values(RanksCase{"matrices", {.tp = 3}, 3}, RanksCase{"experts", {.ep = 2}, 4},
                                           RanksCase{"both", {.tp = 2, .ep = 2}, 4},
                                           RanksCase{"one_tensor_in_the_file", {.ep = 3}, 3, true}),
                         [](const auto& info) { return info.param.name; });

// In inference all ranks have the same tokens, and sum what their own experts make of them.
TEST(ExpertsOnRanksThatAnswer, SumWhatTheirOwnGive) {
  const at::NoGradGuard no_grad;
  for (const bool stacked : {false, true}) {
    const auto one = mixture(stacked);
    const NamedTensors whole = weights_of(*one);
    const auto fill = [&](Module& module) {
      module.visit([&](const std::string& name, Param& p) { p.data = own_part(whole.at(name), p).contiguous(); });
    };
    fill(*one);
    for (const int64_t rows : {kRows, int64_t{1}}) {  // a single token leaves ranks without any
      const at::Tensor x_TD = at::randn({rows, kWidth}), y_TD = (*one)(x_TD, Step{});
      test::on_fake_ranks({.tp = stacked ? 1 : 2, .ep = 3}, stacked ? 3 : 6, [&](MeshView& mesh) {
        const at::NoGradGuard of_thread;
        const auto mine = mixture(stacked);
        mine->place(mesh);
        mine->visit_modules([](const std::string&, Module& m) {
          if (auto* experts = dynamic_cast<Experts*>(&m)) experts->tokens_are_everywhere();
        });
        fill(*mine);
        const at::Tensor got_TD = (*mine)(x_TD, Step{});
        EXPECT_TRUE(at::allclose(got_TD, y_TD, 1e-5, 1e-5)) << (got_TD - y_TD).abs().max();
      });
    }
  }
}

}  // namespace
}  // namespace apus
