// SPDX-License-Identifier: Apache-2.0
// The causal convolution and the sum of keys and values, against their definitions token by
// token; from states on, cut anywhere.
#include "ops/state_scan.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

class State : public OpTest {};

// One sequence, token by token.
at::Tensor summed(const StateInputs& in, bool corrects) {
  const int64_t each = in.v_TNV.size(1) / in.q_TGK.size(1);
  const at::Tensor q = in.q_TGK.repeat_interleave(each, 1), k = in.k_TGK.repeat_interleave(each, 1);
  at::Tensor sum;
  std::vector<at::Tensor> out;
  for (int64_t t = 0; t < q.size(0); ++t) {
    at::Tensor v = in.v_TNV[t];
    if (sum.defined()) sum = sum * in.decay_TN[t].exp().unsqueeze(-1).unsqueeze(-1);
    if (corrects) {
      if (sum.defined()) v = v - (sum * k[t].unsqueeze(-1)).sum(1);
      v = v * in.share_TN[t].unsqueeze(-1);
    }
    const at::Tensor added = k[t].unsqueeze(-1) * v.unsqueeze(1);
    sum = sum.defined() ? sum + added : added;
    out.push_back((sum * q[t].unsqueeze(-1)).sum(1));
  }
  return at::stack(out);
}

struct Shape {
  std::vector<int64_t> lengths;
  int64_t groups, heads, keys, values;
};
const std::vector<Shape> shapes{{{5}, 1, 1, 3, 2}, {{1, 70, 3}, 2, 4, 5, 6}, {{64, 129}, 2, 2, 8, 7}};

int64_t total(const std::vector<int64_t>& lengths) {
  int64_t sum = 0;
  for (const int64_t n : lengths) sum += n;
  return sum;
}

Tensors random_inputs(const Shape& s) {
  const int64_t t = total(s.lengths);
  return {normal({t, s.groups, s.keys}, 1, 0.4), normal({t, s.groups, s.keys}, 2, 0.4),
          normal({t, s.heads, s.values}, 3), normal({t, s.heads}, 4), normal({t, s.heads}, 5)};
}
// Decays and shares of any numbers.
StateInputs inputs_of(const Tensors& x, bool corrects) {
  return {x[0], x[1], x[2], -x[3] * x[3], corrects ? at::sigmoid(x[4]) : at::Tensor()};
}

TEST_P(State, ScanIsTheSumTokenByToken) {
  if (GetParam() != at::kFloat && GetParam() != at::kDouble) GTEST_SKIP() << "computed in f32 or f64";
  for (const Shape& shape : shapes)
    for (const bool corrects : {false, true})
      compare([&](const Tensors& x) { return Tensors{state_scan(inputs_of(x, corrects), shape.lengths)}; },
              [&](const Tensors& x) {
                std::vector<at::Tensor> parts;
                int64_t begin = 0;
                for (const int64_t n : shape.lengths) {
                  Tensors own;
                  for (const at::Tensor& each : x) own.push_back(each.narrow(0, begin, n));
                  parts.push_back(summed(inputs_of(own, corrects), corrects));
                  begin += n;
                }
                return Tensors{at::cat(parts, 0)};
              },
              random_inputs(shape), GetParam(), 10);
}

TEST_P(State, ConvolutionIsTheFormula) {
  if (GetParam() != at::kFloat && GetParam() != at::kDouble) GTEST_SKIP() << "computed in f32 or f64";
  const std::vector<int64_t> lengths{2, 5, 1, 9};
  for (const int64_t taps : {1, 4})
    compare([&](const Tensors& x) { return Tensors{causal_conv(x[0], x[1], x[2], lengths)}; },
            [&](const Tensors& x) {
              std::vector<at::Tensor> rows;
              int64_t begin = 0;
              for (const int64_t n : lengths) {
                for (int64_t t = 0; t < n; ++t) {
                  at::Tensor y = x[2];
                  for (int64_t j = 0; j < taps && j <= t; ++j)
                    y = y + x[0][begin + t - j] * x[1].select(1, taps - 1 - j);
                  rows.push_back(y);
                }
                begin += n;
              }
              return Tensors{at::stack(rows)};
            },
            {normal({total(lengths), 6}, 1), normal({6, taps}, 2), normal({6}, 3)}, GetParam());
}

// A sequence of 51 tokens in steps of these lengths, beside another one; what both ops give.
struct Onward {
  StateInputs in;
  at::Tensor x, weight;
  Tensors run(const std::vector<int64_t>& steps, bool with_neighbour) const {
    at::Tensor state = placed(at::zeros({3, 4, 6, 20}), at::kFloat), before = placed(at::zeros({3, 3, 5}), at::kFloat);
    Tensors sums, convolved;
    int64_t done = 0;
    for (const int64_t n : steps) {
      // The neighbour reads the sequence's last tokens, in front of it.
      const auto rows = [&](const at::Tensor& all) {
        const at::Tensor own = all.narrow(0, done, n);
        return with_neighbour ? at::cat({all.narrow(0, 48, 3), own}, 0) : own;
      };
      const std::vector<int64_t> lengths = with_neighbour ? std::vector<int64_t>{3, n} : std::vector<int64_t>{n};
      const at::Tensor seat = with_neighbour ? at::tensor({0, 2}, at::kLong) : at::tensor({2}, at::kLong);
      const at::Tensor y =
          state_scan_on({rows(in.q_TGK), rows(in.k_TGK), rows(in.v_TNV), rows(in.decay_TN), rows(in.share_TN)}, lengths,
                        seat.to(device().device), state);
      const at::Tensor z = causal_conv_on(rows(x), weight, {}, lengths, seat.to(device().device), before);
      sums.push_back(y.narrow(0, y.size(0) - n, n)), convolved.push_back(z.narrow(0, z.size(0) - n, n));
      done += n;
    }
    return {at::cat(sums, 0), at::cat(convolved, 0)};
  }
};

TEST(StateOnward, AnyCutGivesTheSame) {
  const Shape shape{{51}, 2, 4, 6, 20};
  Tensors placed_inputs;
  for (const at::Tensor& each : random_inputs(shape)) placed_inputs.push_back(placed(each, at::kFloat));
  const Onward o{inputs_of(placed_inputs, true), placed(normal({51, 5}, 9), at::kFloat),
                 placed(normal({5, 4}, 8), at::kFloat)};
  const Tensors whole = o.run({51}, false);
  expect_close(whole[0], state_scan(o.in, {51}), 1e-5, "sums");
  expect_close(whole[1], causal_conv(o.x, o.weight, {}, {51}), 1e-6, "convolution");
  for (const std::vector<int64_t>& steps :
       {std::vector<int64_t>{50, 1}, {1, 2, 48}, {3, 3, 3, 42}, std::vector<int64_t>(51, 1)})
    for (const bool with_neighbour : {false, true}) {
      const Tensors got = o.run(steps, with_neighbour);
      for (size_t i = 0; i < got.size(); ++i)
        if (device().device.is_cpu())
          EXPECT_TRUE(got[i].equal(whole[i])) << "result " << i;
        else
          expect_close(got[i], whole[i], 1e-5, "result " + std::to_string(i));
    }
}

INSTANTIATE_TEST_SUITE_P(Types, State, ::testing::ValuesIn(dtypes()), dtype_of);

}  // namespace
}  // namespace apus::ops::test
