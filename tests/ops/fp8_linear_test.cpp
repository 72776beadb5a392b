// SPDX-License-Identifier: Apache-2.0
// Products of FP8 numbers: rounding against all numbers of the format, and products and gradients against loops over
// numbers rounded so, by each recipe.
#include "ops/fp8_linear.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

// All numbers of the format that are not negative, ascending; the parity of a place is that of the last bit.
std::vector<double> numbers_of(Fp8Type type) {
  const int bits = type == Fp8Type::E4m3 ? 3 : 2, bias = type == Fp8Type::E4m3 ? 7 : 15;
  std::vector<double> all;
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> bits, mantissa = code & ((1 << bits) - 1);
    all.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - bits)
                                : std::ldexp((1 << bits) + mantissa, exponent - bias - bits));
  }
  all.resize(type == Fp8Type::E4m3 ? 127 : 124);  // beyond are no numbers and infinities
  return all;
}

double nearest(double x, const std::vector<double>& all) {
  const double size = std::abs(x);
  const auto above = std::lower_bound(all.begin(), all.end(), size);
  if (above == all.end()) return std::copysign(all.back(), x);
  if (above == all.begin()) return std::copysign(0, x);
  const double up = *above - size, down = size - *(above - 1);
  const bool even = (above - all.begin()) % 2 == 0;
  return std::copysign(up < down || (up == down && even) ? *above : *(above - 1), x);
}

TEST(Fp8, RoundsToTheNearestNumber) {
  for (const Fp8Type type : {Fp8Type::E4m3, Fp8Type::E5m2}) {
    const std::vector<double> all = numbers_of(type);
    std::vector<float> x = {0, 1e-9F, 1e9F, -1e9F, 464, 480, 61440};
    for (size_t i = 0; i + 1 < all.size(); ++i)
      for (const double part : {0.0, 0.25, 0.5, 0.75}) {
        x.push_back(static_cast<float>(all[i] + part * (all[i + 1] - all[i])));
        x.push_back(-x.back());
      }
    const at::Tensor got = rounded_to_fp8(at::tensor(x), type);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(got[static_cast<int64_t>(i)].item<double>(), nearest(x[i], all)) << x[i];
  }
}

using Matrix = std::vector<std::vector<double>>;
Matrix matrix_of(const at::Tensor& t) {
  Matrix m(static_cast<size_t>(t.size(0)), std::vector<double>(static_cast<size_t>(t.size(1))));
  for (size_t i = 0; i < m.size(); ++i)
    for (size_t j = 0; j < m[i].size(); ++j)
      m[i][j] = t[static_cast<int64_t>(i)][static_cast<int64_t>(j)].item<double>();
  return m;
}
Matrix turned(const Matrix& m) {
  Matrix out(m[0].size(), std::vector<double>(m.size()));
  for (size_t i = 0; i < m.size(); ++i)
    for (size_t j = 0; j < m[i].size(); ++j) out[j][i] = m[i][j];
  return out;
}

// What FP8 with scales makes of a matrix whose rows are summed along.
Matrix rounded(Matrix m, Fp8Type type, Fp8Recipe::Scale scale, bool weight) {
  const std::vector<double> all = numbers_of(type);
  const size_t rows = scale == Fp8Recipe::Scale::Tensor            ? m.size()
                      : scale == Fp8Recipe::Scale::Block && weight ? 128
                                                                   : 1;
  const size_t columns = scale == Fp8Recipe::Scale::Tensor ? m[0].size() : scale == Fp8Recipe::Scale::Block ? 128 : 32;
  for (size_t r = 0; r < m.size(); r += rows)
    for (size_t c = 0; c < m[0].size(); c += columns) {
      double most = 0;
      const auto each = [&](const auto& f) {
        for (size_t i = r; i < std::min(r + rows, m.size()); ++i)
          for (size_t j = c; j < std::min(c + columns, m[0].size()); ++j) f(m[i][j]);
      };
      each([&](double x) { most = std::max(most, std::abs(x)); });
      double unit = most > 0 ? most / all.back() : 1;
      if (scale != Fp8Recipe::Scale::Tensor && most > 0) unit = std::exp2(std::ceil(std::log2(unit)));
      each([&](double& x) { x = nearest(x / unit, all) * unit; });
    }
  return m;
}
at::Tensor product(const Matrix& a, const Matrix& b) {  // a b'
  at::Tensor out = at::zeros({static_cast<int64_t>(a.size()), static_cast<int64_t>(b.size())}, at::kDouble);
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b.size(); ++j) {
      double sum = 0;
      for (size_t k = 0; k < a[i].size(); ++k) sum += a[i][k] * b[j][k];
      out[static_cast<int64_t>(i)][static_cast<int64_t>(j)] = sum;
    }
  return out;
}

TEST(Fp8, ProductsAndGradientsAreThoseOfRoundedNumbers) {
  for (const auto scale : {Fp8Recipe::Scale::Tensor, Fp8Recipe::Scale::Block, Fp8Recipe::Scale::Mx})
    for (const Fp8Type gradients : {Fp8Type::E4m3, Fp8Type::E5m2}) {
      const Fp8Recipe recipe{scale, gradients};
      const at::Tensor x = normal({150, 40}, 1).to(at::kFloat), w = normal({133, 40}, 2).to(at::kFloat) * 3,
                       g = normal({150, 133}, 3).to(at::kFloat) * 1e-3;
      x[7].zero_();
      const at::Tensor x1 = x.clone().requires_grad_(), w1 = w.clone().requires_grad_();
      const at::Tensor y = fp8_linear(x1, w1, {}, recipe);
      y.backward(g);
      const Matrix mx = matrix_of(x), mw = matrix_of(w), mg = matrix_of(g);
      const auto in = [&](const Matrix& m, bool weight) { return rounded(m, Fp8Type::E4m3, scale, weight); };
      const auto of = [&](const Matrix& m) { return rounded(m, gradients, scale, false); };
      const auto same = [&](const at::Tensor& got, const at::Tensor& wanted, const char* what) {
        const double off = (got.to(at::kDouble) - wanted).abs().max().item<double>();
        EXPECT_LT(off, 3e-5 * wanted.abs().max().item<double>()) << what << ", scale " << static_cast<int>(scale);
      };
      same(y.detach(), product(in(mx, false), in(mw, true)), "y");
      same(x1.grad(), product(of(mg), in(turned(mw), true)), "dx");
      same(w1.grad(), product(of(turned(mg)), in(turned(mx), false)), "dw");
      // A bias, an earlier result, and a weight that stays as it is.
      const at::Tensor bias = normal({133}, 4).to(at::kFloat).requires_grad_(), x2 = x.clone().requires_grad_();
      const at::Tensor again = fp8_linear(x2, w, bias, recipe, y.detach());
      EXPECT_TRUE(at::equal(again.detach(), (y + bias).detach()));
      again.backward(g);
      EXPECT_TRUE(at::equal(x2.grad(), x1.grad()));
      EXPECT_TRUE(at::allclose(bias.grad(), g.sum(0)));
    }
}

TEST(Fp8, RowsOfExpertsAreTheirOwnProducts) {
  const Fp8Recipe recipe{Fp8Recipe::Scale::Block, Fp8Type::E5m2};
  const at::Tensor x = normal({9, 16}, 1).to(at::kFloat).requires_grad_(),
                   w = normal({3, 8, 16}, 2).to(at::kFloat).requires_grad_();
  const at::Tensor y = fp8_grouped_linear(x, w, {4, 0, 5}, recipe);
  y.sum().backward();
  const at::Tensor dx = x.grad().clone(), dw = w.grad().clone();
  x.mutable_grad().reset(), w.mutable_grad().reset();
  const at::Tensor each =
      at::cat({fp8_linear(x.narrow(0, 0, 4), w[0], {}, recipe), fp8_linear(x.narrow(0, 4, 5), w[2], {}, recipe)});
  each.sum().backward();
  EXPECT_TRUE(at::equal(y, each));
  EXPECT_TRUE(at::equal(dx, x.grad()));
  EXPECT_TRUE(at::equal(dw, w.grad()));
}

}  // namespace
}  // namespace apus::ops::test
