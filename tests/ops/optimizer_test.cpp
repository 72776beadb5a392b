// SPDX-License-Identifier: Apache-2.0
// adamw and sum_of_squares.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

// torch.optim.AdamW, one number at a time.
struct Plain {
  double p, m = 0, v = 0;
  void step(double g, const AdamwStep& s) {
    g *= s.grad_scale;
    p -= s.lr * s.weight_decay * p;
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const double t = static_cast<double>(s.step), unbiased_m = m / (1 - std::pow(s.beta1, t)),
                 unbiased_v = v / (1 - std::pow(s.beta2, t));
    p -= s.lr * unbiased_m / (std::sqrt(unbiased_v) + s.eps);
  }
};

const AdamwStep settings{
    .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1, .grad_scale = 0.7};

// `steps` steps on 37 numbers; p in `type`, moments in `state`, with or without a master.
void check_adamw(at::ScalarType type, at::ScalarType state, bool with_master, double limit) {
  const int64_t count = 37, steps = 5;
  const at::Tensor start = rounded(normal({count}, 1), type);
  at::Tensor p = placed(start, type), m = placed(at::zeros({count}, at::kDouble), state), v = m.clone();
  at::Tensor master = with_master ? placed(start, at::kFloat) : at::Tensor();
  std::vector<Plain> truth;
  for (int64_t i = 0; i < count; ++i) truth.push_back({start[i].item<double>()});
  for (int64_t t = 1; t <= steps; ++t) {
    AdamwStep s = settings;
    s.step = t;
    const at::Tensor grad = rounded(normal({count}, 10 + t), type);
    adamw(p, placed(grad, type), m, v, master, s);
    for (int64_t i = 0; i < count; ++i) truth[i].step(grad[i].item<double>(), s);
  }
  at::Tensor expected = at::empty({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) expected[i] = truth[i].p;
  expect_close(with_master ? master : p, expected, limit, "parameter");
  EXPECT_TRUE(!with_master || p.equal(master.to(type))) << "the parameter is the master, rounded";
}

TEST(Optimizer, AdamwIsTorchs) {
  check_adamw(at::kFloat, at::kFloat, false, 1e-6);
  if (device().kind->supports(at::kDouble)) check_adamw(at::kDouble, at::kDouble, false, 1e-13);
}

TEST(Optimizer, AdamwWithAMasterIsAsGoodAsF32) {
  if (!device().kind->supports(at::kBFloat16)) GTEST_SKIP() << device().name() << " has no bf16";
  check_adamw(at::kBFloat16, at::kFloat, true, 1e-6);
  check_adamw(at::kBFloat16, at::kBFloat16, true, 1e-3);
  check_adamw(at::kBFloat16, at::kFloat, false, 1e-2);
}

Moments8 no_moments(int64_t count) {
  const at::Tensor code = placed(at::zeros({count}, at::kDouble), at::kFloat);
  const at::Tensor scale = placed(at::zeros({(count + kMomentBlock - 1) / kMomentBlock}, at::kDouble), at::kFloat);
  return {code.to(at::kChar), scale, code.to(at::kByte), scale.clone()};
}

// A byte holds a moment to some percent: after some steps the way that a parameter went is right to about that.
TEST(Optimizer, AdamwWithMomentsOfAByteGoesTheSameWay) {
  const int64_t count = 1000, steps = 20;  // not a multiple of the block
  const at::Tensor start = rounded(normal({count}, 1), at::kFloat);
  at::Tensor p = placed(start, at::kFloat), none;
  Moments8 moments = no_moments(count);
  std::vector<Plain> truth;
  for (int64_t i = 0; i < count; ++i) truth.push_back({start[i].item<double>()});
  for (int64_t t = 1; t <= steps; ++t) {
    AdamwStep s = settings;
    s.step = t, s.dither = 1000003 * t;
    const at::Tensor grad = rounded(normal({count}, 10 + t), at::kFloat);
    adamw_8bit(p, placed(grad, at::kFloat), moments, none, s);
    for (int64_t i = 0; i < count; ++i) truth[i].step(grad[i].item<double>(), s);
  }
  at::Tensor expected = at::empty({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) expected[i] = truth[i].p;
  const at::Tensor off = (exact(p) - expected).abs(), way = (expected - start.to(at::kDouble)).abs();
  EXPECT_LT(off.mean().item<double>() / way.mean().item<double>(), 0.05);
  EXPECT_LT(off.max().item<double>() / way.mean().item<double>(), 0.5);
}

// Updates far below bf16's last bit add up when they are rounded in proportion, and are lost otherwise.
TEST(Optimizer, SmallUpdatesCountWithStochasticRounding) {
  if (!device().kind->supports(at::kBFloat16)) GTEST_SKIP() << device().name() << " has no bf16";
  const int64_t count = 3000, steps = 100;
  for (const bool bytes : {false, true})
    for (const bool stochastic : {false, true}) {
      at::Tensor p = placed(at::ones({count}, at::kDouble), at::kBFloat16), none;
      at::Tensor m = placed(at::zeros({count}, at::kDouble), at::kFloat), v = m.clone();
      Moments8 moments = no_moments(count);
      const at::Tensor grad = placed(at::ones({count}, at::kDouble), at::kBFloat16);
      for (int64_t t = 1; t <= steps; ++t) {
        const AdamwStep s{.lr = 1e-4,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0,
                          .step = t,
                          .grad_scale = 1,
                          .dither = (t * int64_t{0xc13fa9a9}) & 0xffffffff,
                          .stochastic = stochastic};
        if (bytes)
          adamw_8bit(p, grad, moments, none, s);
        else
          adamw(p, grad, m, v, none, s);
      }
      EXPECT_NEAR(exact(p).mean().item<double>(), stochastic ? 1 - 1e-2 : 1, stochastic ? 2e-4 : 0) << bytes;
    }
}

TEST(Optimizer, AdamwOnATrainedLeafAndOnNothing) {
  at::Tensor p = placed(normal({4}, 1), at::kFloat).requires_grad_(), none;
  at::Tensor m = at::zeros_like(p.detach()), v = m.clone();
  const at::Tensor before = p.detach().clone();
  adamw(p, at::ones_like(m), m, v, none, settings);
  EXPECT_TRUE(p.is_leaf());
  EXPECT_FALSE(p.equal(before));
  at::Tensor empty = at::empty({0}, p.options()), e1 = empty.clone(), e2 = empty.clone();
  adamw(empty, empty.clone(), e1, e2, none, settings);
}

TEST(Optimizer, SumOfSquaresIsExact) {
  for (const auto type : dtypes()) {
    Tensors tensors, truth;
    for (const int64_t n : {0, 1, 4095, 4096, 5000, 1100000}) {
      truth.push_back(rounded(normal({n}, n), type));
      tensors.push_back(placed(truth.back(), type));
    }
    tensors.push_back(placed(normal({6, 10}, 5), type).t());
    truth.push_back(exact(tensors.back()));
    double expected = 0;
    for (const at::Tensor& t : truth) expected += (t * t).sum().item<double>();
    EXPECT_NEAR(sum_of_squares(tensors) / expected, 1, type == at::kDouble ? 1e-13 : 1e-7) << float_type_name(type);
  }
  EXPECT_EQ(sum_of_squares({}), 0);
}

TEST(Optimizer, SumOfSquaresShowsWhatIsNotANumber) {
  at::Tensor t = placed(normal({5000}, 1), at::kFloat);
  t[4500].fill_(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isinf(sum_of_squares({t})));
  t[17].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(sum_of_squares({t})));
}

}  // namespace
}  // namespace apus::ops::test
