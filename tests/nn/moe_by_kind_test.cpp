// SPDX-License-Identifier: Apache-2.0
// Two mixtures by the kind of a token: each token meets its own, whatever the others are, and the shared expert.
#include "nn/moe_by_kind.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "nn/parts.h"
#include "nn/training_step.h"
#include "tests/fake_mesh.h"

namespace apus {
namespace {

constexpr int64_t kAcross = 12;

MoeMlp::Spec mixture(int64_t ffn, int64_t shared) {
  MoeMlp::Spec spec{.hidden = kAcross,
                    .ffn = ffn,
                    .experts = 5,
                    .per_token = 2,
                    .shared_ffn = shared,
                    .router = {.normalise = true},
                    .names = {.shared = "shared_experts", .shared_is_gated = false}};
  spec.names.correction = shared > 0 ? "correction" : nullptr, spec.names.correction_rows = 2;
  if (shared == 0) spec.names.router = "vision_gate", spec.names.experts = "vision_experts";
  return spec;
}

at::Tensor rows_of(const std::vector<int64_t>& rows) { return at::tensor(rows, at::kLong); }

Step with_kinds(const std::vector<int64_t>& media, const std::vector<int64_t>& text) {
  Step s;
  s.kinds = std::make_shared<const TokenKinds>(TokenKinds{rows_of(media), rows_of(text)});
  return s;
}

class ByKind : public ::testing::Test {
 protected:
  ByKind() {
    all_.visit([](const std::string&, Param& p) { p.data = at::randn(p.full) * 0.3; });
  }
  MoeByKind all_{mixture(10, 8), mixture(6, 0)};
  at::Tensor x_TD = at::randn({6, kAcross});
};

TEST_F(ByKind, ATokenMeetsItsOwnExperts) {
  const at::NoGradGuard inference;
  const at::Tensor y_TD = all_(x_TD, with_kinds({1, 4}, {0, 2, 3, 5})), text_TD = all_(x_TD, Step{});
  for (int64_t t = 0; t < 6; ++t) {
    const bool media = t == 1 || t == 4;
    const at::Tensor row = x_TD.narrow(0, t, 1);
    const at::Tensor alone = all_(row, media ? with_kinds({0}, {}) : Step{});
    EXPECT_LT((alone - y_TD.narrow(0, t, 1)).abs().max().item<double>(), 1e-6) << t;
    const double moved = (text_TD.narrow(0, t, 1) - y_TD.narrow(0, t, 1)).abs().max().item<double>();
    EXPECT_EQ(moved > 1e-3, media) << t;
  }
}

// Choices follow a correction, whose rows are of one kind each.
TEST_F(ByKind, EachKindHasARowOfTheCorrection) {
  const at::NoGradGuard inference;
  const Step s = with_kinds({1, 4}, {0, 2, 3, 5});
  const at::Tensor before_TD = all_(x_TD, s);
  all_.visit([](const std::string& name, Param& p) {
    if (name == "correction") p.data.select(0, 1).copy_(at::tensor({9.0F, 9.0F, 0.0F, 0.0F, 0.0F}));
  });
  const at::Tensor first_TD = all_(x_TD, s);
  all_.visit([](const std::string& name, Param& p) {
    if (name == "correction") p.data.select(0, 1).copy_(at::tensor({0.0F, 0.0F, 0.0F, 9.0F, 9.0F}));
  });
  const at::Tensor last_TD = all_(x_TD, s);
  const auto moved = [](const at::Tensor& a, const at::Tensor& b, const std::vector<int64_t>& rows) {
    return (at::index_select(a, 0, rows_of(rows)) - at::index_select(b, 0, rows_of(rows))).abs().max().item<double>();
  };
  EXPECT_EQ(moved(before_TD, last_TD, {0, 2, 3, 5}), 0);
  EXPECT_GT(moved(first_TD, last_TD, {1, 4}), 1e-3);
}

// Ranks that sum gradients wait for each other: texts alone have gradients of nought for the other kind.
TEST_F(ByKind, BothHaveGradientsInTraining) {
  all_.visit([](const std::string&, Param& p) { p.data.set_requires_grad(p.trainable); });
  Step s;
  auto loss = std::make_shared<RouterLoss>();
  loss->scale = 1;
  set_training(s, {.router = loss});
  all_(x_TD, s).sum().backward();
  EXPECT_EQ(loss->rows, 6);
  all_.visit([](const std::string& name, Param& p) {
    if (!p.trainable) return;
    ASSERT_TRUE(p.data.grad().defined()) << name;
    if (name.find("vision_") == 0) EXPECT_EQ(p.data.grad().abs().max().item<double>(), 0) << name;
  });
}

// One rank reads a text with media, the other a text alone: both send tokens to the experts of both kinds.
TEST(ByKindOnRanks, GiveWhatOneRankGives) {
  using NamedTensors = std::map<std::string, at::Tensor>;
  const std::vector<Step> steps = {with_kinds({1, 4}, {0, 2, 3, 5}), Step{}};
  const std::vector<at::Tensor> x = {at::randn({6, kAcross}), at::randn({3, kAcross})};
  const std::vector<at::Tensor> dy = {at::randn({6, kAcross}), at::randn({3, kAcross})};
  MoeByKind one(mixture(10, 8), mixture(6, 0));
  NamedTensors whole, grads, grads_of_ranks;
  one.visit([&](const std::string& name, Param& p) {
    whole[name] = at::randn(p.full) * 0.3;
    grads[name] = at::zeros(p.full), grads_of_ranks[name] = at::zeros(p.full);
  });
  std::mutex mutex;
  const auto passed = [&](MoeByKind& module, size_t reader, NamedTensors& into) {
    module.visit([&](const std::string& name, Param& p) {
      p.data = own_part(whole.at(name), p).clone().set_requires_grad(p.trainable);
    });
    const at::Tensor y_TD = module(x[reader], steps[reader]);
    y_TD.backward(dy[reader]);
    const std::lock_guard lock(mutex);
    module.visit([&](const std::string& name, Param& p) {
      if (p.trainable) own_part(into.at(name), p).add_(p.data.grad());
    });
    return y_TD.detach();
  };
  const std::vector<at::Tensor> y = {passed(one, 0, grads), passed(one, 1, grads)};
  test::on_fake_ranks({.ep = 2}, 2, [&](MeshView& mesh) {
    MoeByKind mine(mixture(10, 8), mixture(6, 0));
    mine.place(mesh);
    const auto reader = static_cast<size_t>(mesh.rank(kDataAxes));
    const at::Tensor got = passed(mine, reader, grads_of_ranks);
    EXPECT_TRUE(at::allclose(got, y[reader], 1e-5, 1e-5)) << (got - y[reader]).abs().max();
  });
  for (const auto& [name, grad] : grads) EXPECT_TRUE(at::allclose(grads_of_ranks[name], grad, 1e-4, 1e-4)) << name;
}

}  // namespace
}  // namespace apus
