// SPDX-License-Identifier: Apache-2.0
// What the tests of the ops share. They run on the device that APUS_TEST_DEVICE names (default cpu), in every type it
// computes with, against a straightforward formula in f64 on the processor and torch's own gradients of that formula.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "tensor/dtype.h"

namespace apus::ops::test {

using Tensors = std::vector<at::Tensor>;
using Fn = std::function<Tensors(const Tensors&)>;

inline const DeviceChoice& device() {
  static const DeviceChoice choice = [] {
    const char* wanted = std::getenv("APUS_TEST_DEVICE");
    return open_device(wanted && *wanted ? wanted : "cpu");
  }();
  return choice;
}

// Types the device computes with. On the processor that is also f16, which models there avoid but the ops must know.
inline std::vector<at::ScalarType> dtypes() {
  std::vector<at::ScalarType> out;
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    if (device().device.is_cpu() || device().kind->supports(type)) out.push_back(type);
  return out;
}

class OpTest : public ::testing::TestWithParam<at::ScalarType> {};
inline std::string dtype_of(const ::testing::TestParamInfo<at::ScalarType>& info) {
  return float_type_name(info.param);
}

// Normal numbers, f64 on the processor; the same for a seed everywhere.
inline at::Tensor normal(at::IntArrayRef sizes, uint64_t seed, double scale = 1) {
  int64_t count = 1;
  for (const int64_t n : sizes) count *= n;
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> draw(0, scale);
  std::vector<double> values(count);
  for (double& v : values) v = draw(bits);
  return at::from_blob(values.data(), sizes, at::kDouble).clone();
}

inline at::Tensor integers(at::IntArrayRef sizes, int64_t low, int64_t high, uint64_t seed) {
  int64_t count = 1;
  for (const int64_t n : sizes) count *= n;
  std::mt19937_64 bits(seed);
  std::uniform_int_distribution<int64_t> draw(low, high - 1);
  std::vector<int64_t> values(count);
  for (int64_t& v : values) v = draw(bits);
  return at::from_blob(values.data(), sizes, at::kLong).clone();
}

// [0, n0, n0 + n1, ...] int32 on the device.
inline at::Tensor cumulative(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> sums{0};
  for (const int64_t n : lengths) sums.push_back(sums.back() + static_cast<int32_t>(n));
  return at::from_blob(sums.data(), {static_cast<int64_t>(sums.size())}, at::kInt).clone().to(device().device);
}

inline at::Tensor exact(const at::Tensor& t) { return t.detach().to(at::kCPU).to(at::kDouble); }
inline at::Tensor rounded(const at::Tensor& t, at::ScalarType type) { return t.to(type).to(at::kDouble); }
inline at::Tensor placed(const at::Tensor& t, at::ScalarType type) { return t.to(type).to(device().device); }

// Largest error over the largest value. Half types: a few roundings of 2^-9 each.
inline double tolerance(at::ScalarType type) {
  return type == at::kDouble ? 1e-12 : type == at::kFloat ? 4e-6 : 1.6e-2;
}

inline double error(const at::Tensor& actual, const at::Tensor& expected) {
  if (expected.numel() == 0) return 0;
  return ((exact(actual) - exact(expected)).abs().max() / (exact(expected).abs().max() + 1e-30)).item<double>();
}

inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double limit, const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  if (expected.numel() == 0) return;
  ASSERT_TRUE(at::isfinite(exact(actual)).all().item<bool>()) << what << " is not finite";
  // Where the truth is 0 throughout, an absolute error stands for the relative one.
  const bool zero = exact(expected).abs().max().item<double>() == 0;
  EXPECT_LE(zero ? exact(actual).abs().max().item<double>() : error(actual, expected), limit) << what;
}

// Random incoming gradients for the outputs; the op and the formula get the same ones.
inline Tensors incoming(const Tensors& outputs) {
  Tensors out;
  for (size_t i = 0; i < outputs.size(); ++i) out.push_back(normal(outputs[i].sizes(), 1000 + i));
  return out;
}

inline Tensors gradients(const Tensors& outputs, const Tensors& inputs, const Tensors& into) {
  return torch::autograd::grad(outputs, inputs, into, /*retain_graph=*/false, /*create_graph=*/false,
                               /*allow_unused=*/true);
}

// The op in `type` on the device against the formula in f64, outputs and gradients of every input.
inline void compare(const Fn& op, const Fn& formula, const Tensors& inputs, at::ScalarType type, double factor = 1) {
  Tensors plain, truth;
  for (const at::Tensor& x : inputs) {
    plain.push_back(placed(x, type).requires_grad_());
    truth.push_back(rounded(x, type).requires_grad_());
  }
  const Tensors expected = formula(truth), actual = op(plain);
  const double limit = factor * tolerance(type);
  ASSERT_EQ(actual.size(), expected.size());
  Tensors into, into_truth = incoming(expected);
  for (size_t i = 0; i < actual.size(); ++i) {
    into_truth[i] = rounded(into_truth[i], actual[i].scalar_type());
    into.push_back(placed(into_truth[i], actual[i].scalar_type()));
    expect_close(actual[i], expected[i], limit, "output " + std::to_string(i));
  }
  const Tensors d = gradients(actual, plain, into), d_truth = gradients(expected, truth, into_truth);
  for (size_t i = 0; i < d.size(); ++i) {
    if (!d[i].defined() && !d_truth[i].defined()) continue;
    ASSERT_TRUE(d[i].defined()) << "gradient " << i;
    EXPECT_EQ(d[i].scalar_type(), type);
    expect_close(d[i], d_truth[i].defined() ? d_truth[i] : at::zeros_like(truth[i]), 2 * limit,
                 "gradient " + std::to_string(i));
  }
  // Without gradients the same numbers come out.
  const at::NoGradGuard none;
  const Tensors again = op(plain);
  for (size_t i = 0; i < again.size(); ++i)
    EXPECT_EQ(error(again[i], actual[i]), 0) << "output " << i << " without gradients";
}

// Gradients in f64 against central differences at some elements of every input.
inline void compare_with_differences(const Fn& op, const Tensors& inputs, int64_t elements = 12) {
  if (!device().kind->supports(at::kDouble)) GTEST_SKIP() << device().name() << " has no f64 for finite differences";
  Tensors x;
  for (const at::Tensor& t : inputs) x.push_back(placed(t, at::kDouble).requires_grad_());
  const Tensors out = op(x), into = incoming(out);
  Tensors placed_into;
  for (const at::Tensor& g : into) placed_into.push_back(g.to(device().device));
  const Tensors d = gradients(out, x, placed_into);
  const at::NoGradGuard none;
  const auto value = [&](size_t which, int64_t element, double change) {
    Tensors moved;
    for (const at::Tensor& t : inputs) moved.push_back(t.clone());
    moved[which].view({-1})[element] += change;
    for (at::Tensor& t : moved) t = t.to(device().device);
    const Tensors y = op(moved);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += (exact(y[i]) * into[i]).sum().item<double>();
    return sum;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    const double scale = d[i].defined() && d[i].numel() ? exact(d[i]).abs().max().item<double>() : 0;
    for (int64_t n = 0; n < std::min(elements, inputs[i].numel()); ++n) {
      const int64_t element = n * 7919 % inputs[i].numel();
      const double numeric = (value(i, element, 1e-5) - value(i, element, -1e-5)) / 2e-5;
      const double analytic = d[i].defined() ? exact(d[i]).reshape({-1})[element].item<double>() : 0;
      EXPECT_NEAR(analytic, numeric, 1e-7 * (1 + scale)) << "input " << i << ", element " << element;
    }
  }
}

inline at::Tensor on_meta(const at::Tensor& t) { return t.to(at::kMeta); }

inline void expect_shape(const at::Tensor& meta, const at::Tensor& real) {
  EXPECT_TRUE(meta.is_meta());
  EXPECT_EQ(meta.sizes(), real.sizes());
  EXPECT_EQ(meta.scalar_type(), real.scalar_type());
}

}  // namespace apus::ops::test
