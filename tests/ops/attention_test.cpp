// SPDX-License-Identifier: Apache-2.0
// attention, paged_attention and store_kv.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "ops/attention_signature.h"
#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

struct Lengths {
  std::vector<int64_t> q, k;
};

int64_t total(const std::vector<int64_t>& n) {
  int64_t sum = 0;
  for (const int64_t x : n) sum += x;
  return sum;
}
int64_t longest(const std::vector<int64_t>& n) {
  int64_t most = 0;
  for (const int64_t x : n) most = std::max(most, x);
  return most;
}

// One sequence with the whole score matrix; queries that see nothing give 0. Also the log-sum-exp [N, q].
// scores [N, q, keys].
struct Bent {
  double softcap = 0;
  at::Tensor sinks_N = {};
  at::Tensor scores(const at::Tensor& s) const { return softcap > 0 ? (s / softcap).tanh() * softcap : s; }
  // The share of each key.
  at::Tensor softmax(const at::Tensor& s) const {
    if (!sinks_N.defined()) return at::softmax(s, -1);
    const at::Tensor sink = sinks_N.view({-1, 1, 1}).expand({-1, s.size(1), 1});
    return at::softmax(at::cat({s, sink}, -1), -1).narrow(2, 0, s.size(2));
  }
};

std::pair<at::Tensor, at::Tensor> dense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                                        Mask mask, const Bent& bent = {}) {
  const int64_t n = q.size(0), m = k.size(0), group = q.size(1) / k.size(1);
  const at::Tensor keys = k.repeat_interleave(group, 1).transpose(0, 1),
                   values = v.repeat_interleave(group, 1).transpose(0, 1);
  const at::Tensor position = (at::arange(n, at::kLong) + (m - n)).unsqueeze(1),
                   key = at::arange(m, at::kLong).unsqueeze(0);
  at::Tensor seen = key >= -1;
  seen = seen.expand({n, m});
  if (mask.causal) seen = seen & (key <= position);
  if (mask.window != 0) seen = seen & (key > position - std::abs(mask.window));
  if (mask.window < 0) seen = seen & (key < position - mask.window);
  const double none = -std::numeric_limits<double>::infinity();
  const at::Tensor s =
      bent.scores(at::matmul(q.transpose(0, 1), keys.transpose(1, 2)).mul(scale)).masked_fill(seen.logical_not(), none);
  const at::Tensor blind = seen.any(1).logical_not().view({1, n, 1});
  const at::Tensor p = bent.softmax(s.masked_fill(blind, 0)).masked_fill(blind, 0);
  return {at::matmul(p, values).transpose(0, 1), at::logsumexp(s, -1)};
}

at::Tensor formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Lengths& l, double scale,
                   Mask mask, const Bent& bent = {}) {
  Tensors out;
  int64_t q0 = 0, k0 = 0;
  for (size_t s = 0; s < l.q.size(); ++s) {
    if (l.q[s] > 0)
      out.push_back(l.k[s] > 0 ? dense(q.narrow(0, q0, l.q[s]), k.narrow(0, k0, l.k[s]), v.narrow(0, k0, l.k[s]), scale,
                                       mask, bent)
                                     .first
                               : q.narrow(0, q0, l.q[s]) * 0);
    q0 += l.q[s];
    k0 += l.k[s];
  }
  return out.empty() ? q * 1 : at::cat(out);
}

struct Shape {
  Lengths lengths;
  int64_t heads, k_heads, size;
};
const std::vector<Shape> shapes{
    {{{0}, {0}}, 2, 1, 8},                     // nothing at all
    {{{1}, {1}}, 1, 1, 1},                     // one token
    {{{5, 0, 1, 9}, {5, 0, 1, 9}}, 4, 2, 16},  // packed, one sequence empty
    {{{1, 1, 3}, {7, 1, 12}}, 6, 2, 32},       // queries are the last of the keys
    {{{4}, {2}}, 2, 2, 8},                     // the first queries stand before every key
    {{{37, 64}, {37, 64}}, 7, 1, 24},
};
const std::vector<Mask> masks{{true, 0}, {false, 0}, {true, 1}, {true, 4}, {false, 3}, {false, -3}, {true, 1000}};

Fn op_of(const Lengths& l, double scale, Mask mask) {
  return [=](const Tensors& t) {
    return Tensors{
        attention(t[0], t[1], t[2], cumulative(l.q), cumulative(l.k), longest(l.q), longest(l.k), {scale, mask})};
  };
}

Tensors inputs_of(const Shape& s) {
  return {normal({total(s.lengths.q), s.heads, s.size}, 1), normal({total(s.lengths.k), s.k_heads, s.size}, 2),
          normal({total(s.lengths.k), s.k_heads, s.size}, 3)};
}

class AttentionOp : public OpTest {};

TEST_P(AttentionOp, IsTheFormulaUnderEveryMask) {
  for (size_t i = 0; i < shapes.size(); ++i)
    for (const Mask& mask : masks) {
      SCOPED_TRACE(str("shape ", i, ", causal ", mask.causal, ", window ", mask.window));
      const Shape& s = shapes[i];
      const double scale = 1 / std::sqrt(static_cast<double>(s.size));
      compare(
          op_of(s.lengths, scale, mask),
          [&](const Tensors& t) { return Tensors{formula(t[0], t[1], t[2], s.lengths, scale, mask)}; }, inputs_of(s),
          GetParam());
    }
}

// Bent scores, sinks, and values of another size, each and all together.
TEST_P(AttentionOp, SoftcapAndSinksAreTheFormula) {
  const Lengths l{{37, 1, 20}, {37, 9, 20}};
  for (const double softcap : {0.0, 1.5})
    for (const bool sinks : {false, true})
      for (const Mask& mask : {Mask{true, 0}, Mask{true, 4}}) {
        SCOPED_TRACE(str("softcap ", softcap, ", sinks ", sinks, ", window ", mask.window));
        Tensors inputs{normal({58, 4, 24}, 1), normal({66, 2, 24}, 2), normal({66, 2, 16}, 3)};
        if (sinks) inputs.push_back(normal({4}, 4, 2));
        const auto sinks_of = [&](const Tensors& t) { return sinks ? t[3] : at::Tensor(); };
        compare(
            [&](const Tensors& t) {
              return Tensors{attention(t[0], t[1], t[2], cumulative(l.q), cumulative(l.k), 37, 37,
                                       {0.3, mask, softcap, sinks_of(t)})};
            },
            [&](const Tensors& t) {
              return Tensors{formula(t[0], t[1], t[2], l, 0.3, mask, {softcap, sinks_of(t)})};
            },
            inputs, GetParam());
      }
}

// Scores in the hundreds: exp of one would overflow. Every softmax is nearly one key, so the gradients are small
// differences and only asked to be finite.
TEST_P(AttentionOp, LargeScoresDoNotOverflow) {
  const Shape s{{{6}, {6}}, 2, 2, 8};
  Tensors x, truth;
  for (const at::Tensor& t : inputs_of(s)) {
    x.push_back(placed(t, GetParam()).requires_grad_());
    truth.push_back(rounded(t, GetParam()));
  }
  const Tensors y = op_of(s.lengths, 30.0, {true, 0})(x);
  expect_close(y[0], formula(truth[0], truth[1], truth[2], s.lengths, 30.0, {true, 0}), 60 * tolerance(GetParam()),
               "out");
  for (const at::Tensor& d : gradients(y, x, {at::ones_like(y[0])}))
    EXPECT_TRUE(at::isfinite(exact(d)).all().item<bool>());
}

// Long enough for several chunks of queries.
TEST_P(AttentionOp, ChunksOfQueriesMeet) {
  const Shape s{{{1100, 20}, {1100, 20}}, 4, 2, 8};
  for (const Mask& mask : {Mask{true, 0}, Mask{true, 300}})
    compare(
        op_of(s.lengths, 0.35, mask),
        [&](const Tensors& t) { return Tensors{formula(t[0], t[1], t[2], s.lengths, 0.35, mask)}; }, inputs_of(s),
        GetParam());
}

// The cache holds the sequences' keys in blocks scattered over it, unused places full of NaN.
TEST_P(AttentionOp, PagedIsPacked) {
  const Lengths l{{1, 3, 1, 0}, {13, 7, 1, 5}};
  const int64_t heads = 4, k_heads = 2, size = 16, block = 4, blocks = 16, columns = 4;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor q = placed(normal({total(l.q), heads, size}, 1), GetParam());
  const at::Tensor k = placed(normal({total(l.k), k_heads, size}, 2), GetParam());
  const at::Tensor v = placed(normal({total(l.k), k_heads, size}, 3), GetParam());
  at::Tensor k_cache = at::full({blocks, block, k_heads, size}, nan, k.options()), v_cache = k_cache.clone();
  const at::Tensor order = integers({blocks}, 0, 1, 1) + at::arange(blocks, at::kLong).flip(0);
  at::Tensor table = at::zeros({4, columns}, at::kInt), slot = at::empty({total(l.k)}, at::kLong);
  int64_t used = 0, at_key = 0;
  for (int64_t s = 0; s < 4; ++s)
    for (int64_t j = 0; j < l.k[s]; ++j) {
      if (j % block == 0) table[s][j / block] = order[used++].to(at::kInt);
      slot[at_key++] = table[s][j / block].to(at::kLong) * block + j % block;
    }
  store_kv(k, v, k_cache, v_cache, slot.to(device().device));
  for (const Mask& mask : masks) {
    const at::Tensor packed = attention(q, k, v, cumulative(l.q), cumulative(l.k), 3, 13, {0.25, mask});
    const at::Tensor paged = paged_attention(q, k_cache, v_cache, cumulative(l.q), cumulative(l.k),
                                             table.to(device().device), 3, 13, {0.25, mask});
    expect_close(paged, packed, tolerance(GetParam()), str("causal ", mask.causal, ", window ", mask.window));
  }
}

TEST_P(AttentionOp, StoreSkipsNegativeSlots) {
  const at::Tensor k = placed(normal({3, 2, 4}, 1), GetParam()), v = placed(normal({3, 2, 4}, 2), GetParam());
  at::Tensor k_cache = at::zeros({2, 4, 2, 4}, k.options()), v_cache = at::zeros_like(k_cache);
  store_kv(k, v, k_cache, v_cache, at::tensor({6, -1, 1}, at::kLong).to(device().device));
  EXPECT_EQ(error(k_cache[1][2], k[0]), 0);
  EXPECT_EQ(error(v_cache[1][2], v[0]), 0);
  EXPECT_EQ(error(k_cache[0][1], k[2]), 0);
  EXPECT_EQ(error(v_cache[0][1], v[2]), 0);
  EXPECT_EQ(exact(k_cache).abs().sum().item<double>(),
            (exact(k[0]).abs().sum() + exact(k[2]).abs().sum()).item<double>());
}

INSTANTIATE_TEST_SUITE_P(Ops, AttentionOp, ::testing::ValuesIn(dtypes()), dtype_of);

TEST(AttentionOnce, GradientsAreTheDifferences) {
  for (const Mask& mask : {Mask{true, 0}, Mask{false, 0}, Mask{true, 2}})
    compare_with_differences(op_of({{3, 2}, {4, 2}}, 0.5, mask),
                             {normal({5, 2, 4}, 1), normal({6, 1, 4}, 2), normal({6, 1, 4}, 3)});
}

TEST(AttentionOnce, TheLogSumExpIsTheScores) {
  const at::Tensor q = normal({4, 2, 8}, 1).to(at::kFloat), k = normal({6, 1, 8}, 2).to(at::kFloat),
                   v = normal({6, 1, 8}, 3).to(at::kFloat);
  const auto d = device().device;
  const auto [out, lse] =
      handle<attention_signature::Forward>("apus::attention")
          .call(q.to(d), k.to(d), v.to(d), cumulative({4}), cumulative({6}), 4, 6, 0.3, true, 0, 0, {});
  expect_close(lse, dense(exact(q), exact(k), exact(v), 0.3, {true, 0}).second, tolerance(at::kFloat), "lse");
}

TEST(AttentionOnce, HeadsThatCannotBeSharedAreRefused) {
  const at::Tensor q = placed(normal({2, 3, 4}, 1), at::kFloat), k = placed(normal({2, 2, 4}, 2), at::kFloat);
  EXPECT_THROW(attention(q, k, k, cumulative({2}), cumulative({2}), 2, 2, {1}), Error);
}

TEST(AttentionOnce, ShapesWithoutMemory) {
  const at::Tensor q = on_meta(normal({4, 2, 8}, 1).to(at::kBFloat16)),
                   k = on_meta(normal({6, 1, 8}, 2).to(at::kBFloat16));
  const at::Tensor cu = on_meta(cumulative({4}));
  expect_shape(attention(q, k, k, cu, cu, 4, 6, {1}), q);
  const at::Tensor cache = on_meta(normal({2, 4, 1, 8}, 1).to(at::kBFloat16)),
                   table = on_meta(integers({1, 2}, 0, 2, 1));
  expect_shape(paged_attention(q, cache, cache, cu, cu, table, 4, 6, {1}), q);
}

}  // namespace
}  // namespace apus::ops::test
