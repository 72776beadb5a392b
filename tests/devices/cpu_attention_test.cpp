// SPDX-License-Identifier: Apache-2.0
// The processor's attention, plain and paged: against the reference body in f64, and bit for bit what must not depend
// on the rest of the batch.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "ops/attention_signature.h"
#include "ops/ops.h"
#include "quant/numbers.h"
#include "tests/devices/cpu_kernels.h"

namespace apus::cpu {
namespace {

using ops::attention_signature::Backward;
using ops::attention_signature::Forward;

// Sequences in pages scattered over a cache; unused places hold NaN, which must never be looked at.
struct Paged {
  at::Tensor k_cache, v_cache, table;
  Paged(const at::Tensor& k, const at::Tensor& v, const std::vector<int32_t>& cu, int64_t page) {
    const int64_t sequences = static_cast<int64_t>(cu.size()) - 1;
    int64_t most = 1;
    for (int64_t s = 0; s < sequences; ++s) most = std::max<int64_t>(most, (cu[s + 1] - cu[s] + page - 1) / page);
    const at::Tensor order = at::randperm(sequences * most, at::kInt);
    table = order.view({sequences, most});
    k_cache = at::empty({sequences * most, page, k.size(1), k.size(2)}, k.options()).fill_(NAN);
    v_cache = k_cache.clone();
    at::Tensor slot = at::empty({k.size(0)}, at::kLong);
    for (int64_t s = 0; s < sequences; ++s)
      for (int64_t i = 0; i < cu[s + 1] - cu[s]; ++i)
        slot[cu[s] + i] = table[s][i / page].item<int64_t>() * page + i % page;
    ops::store_kv(k, v, k_cache, v_cache, slot);
  }
};

at::Tensor ints(const std::vector<int32_t>& v) { return at::tensor(v, at::kInt); }

// How queries meet keys, and the size of values.
struct AttentionWay {
  int64_t h, hv;
  ops::Mask mask;
  double softcap = 0;
  bool sinks = false;
};

std::vector<AttentionWay> attention_ways() {
  std::vector<AttentionWay> ways;
  for (const int64_t h : {16, 64, 80})
    for (const ops::Mask mask : {ops::Mask{true, 0}, ops::Mask{true, 50}, ops::Mask{false, 0}, ops::Mask{false, -50}})
      ways.push_back({h, h, mask});
  const ops::Mask causal{true, 0}, sliding{true, 50};
  ways.insert(ways.end(), {{64, 64, causal, 2.0},
                           {80, 80, sliding, 5.0},
                           {64, 64, causal, 0, true},
                           {16, 16, sliding, 3.0, true},
                           {48, 32, causal},
                           {40, 24, sliding},
                           {96, 128, causal, 4.0, true}});
  return ways;
}

TEST_P(CpuKernels, AttentionAndItsGradient) {
  const std::vector<int32_t> cu_q = {0, 3, 130, 131, 331}, cu_k = {0, 3, 300, 301, 501};
  for (const auto type : kTypes)
    for (const AttentionWay& way : attention_ways()) {
      const ops::Mask mask = way.mask;
      const at::Tensor q = at::randn({331, 6, way.h}).to(type), k = at::randn({501, 2, way.h}).to(type),
                       v = at::randn({501, 2, way.hv}).to(type);
      const at::Tensor grad = at::randn({331, 6, way.hv}).to(type);
      const OptionalTensor sinks = way.sinks ? OptionalTensor(at::randn({6}) * 3) : OptionalTensor();
      const auto run = [&](at::ScalarType t) {
        const auto as = [&](const at::Tensor& x) { return x.to(t); };
        const auto [out, lse] = op<Forward>("apus::attention")
                                    .call(as(q), as(k), as(v), ints(cu_q), ints(cu_k), 200, 297, 0.2, mask.causal,
                                          mask.window, way.softcap, sinks);
        const auto [dq, dk, dv] = op<Backward>("apus::attention_backward")
                                      .call(as(grad), as(q), as(k), as(v), out, lse, ints(cu_q), ints(cu_k), 200, 297,
                                            0.2, mask.causal, mask.window, way.softcap, sinks);
        return std::vector<at::Tensor>{out, lse, dq, dk, dv};
      };
      const auto got = run(type), expected = run(at::kDouble);
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LT(error(got[i], expected[i]), tolerance(type) * (i < 2 ? 1 : 2))
            << "result " << i << " head sizes " << way.h << " and " << way.hv << " window " << mask.window
            << " softcap " << way.softcap << " sinks " << way.sinks;
    }
}

// Values that are the front of the keys' own cache, with sinks and a bend: a prompt gives what each token alone gives.
TEST_P(CpuKernels, PagedAttentionWithValuesInsideOfKeys) {
  for (const auto type : kTypes) {
    const std::vector<int32_t> cu = {0, 5, 305};
    const at::Tensor q = at::randn({305, 6, 72}).to(type), k = at::randn({305, 1, 72}).to(type);
    const at::Tensor v = k.narrow(2, 0, 56);
    const ops::AttentionRule rule{0.2, {true, 100}, 4.0, at::randn({6})};
    const Paged cache(k, k, cu, 16);
    const at::Tensor inside = cache.k_cache.narrow(3, 0, 56),
                     all = ops::paged_attention(q, cache.k_cache, inside, ints(cu), ints(cu), cache.table, 300, 300,
                                                rule);
    EXPECT_TRUE(all.equal(ops::attention(q, k, v, ints(cu), ints(cu), 300, 300, rule)));
    for (const int32_t end : {1, 64, 170, 300})
      EXPECT_TRUE(ops::paged_attention(q.narrow(0, 4 + end, 1), cache.k_cache, inside, ints({0, 1}), ints({0, end}),
                                       cache.table.narrow(0, 1, 1), 1, end, rule)
                      .equal(all.narrow(0, 4 + end, 1)))
          << end;
  }
}

TEST_P(CpuKernels, PagedAttentionIsAttention) {
  for (const auto type : kTypes) {
    const std::vector<int32_t> cu = {0, 5, 1205, 1206};
    const at::Tensor q = at::randn({1206, 4, 64}).to(type), k = at::randn({1206, 2, 64}).to(type),
                     v = at::randn({1206, 2, 64}).to(type);
    const Paged cache(k, v, cu, 7);
    const at::Tensor plain = ops::attention(q, k, v, ints(cu), ints(cu), 1200, 1200, {0.125});
    EXPECT_TRUE(
        ops::paged_attention(q, cache.k_cache, cache.v_cache, ints(cu), ints(cu), cache.table, 1200, 1200, {0.125})
            .equal(plain));
    EXPECT_LT(error(plain, ops::attention(q.to(at::kDouble), k.to(at::kDouble), v.to(at::kDouble), ints(cu), ints(cu),
                                          1200, 1200, {0.125})),
              tolerance(type));
  }
}

// A cache of codes is one of the numbers that they stand for, of this type; and those are near.
TEST_P(CpuKernels, PagedAttentionOverCodes) {
  constexpr int64_t kTokens = 300, kHeads = 2, kSize = 72, kBlock = 16;
  const std::vector<int32_t> cu = {0, kTokens};
  const at::Tensor slots = at::arange(kTokens, at::kLong), table = at::arange(19, at::kInt).view({1, 19});
  for (const auto type : kTypes)
    for (const auto codes : {at::kChar, at::kByte}) {
      const at::Tensor q = at::randn({kTokens, 6, kSize}).to(type), k = at::randn({kTokens, kHeads, kSize}).to(type),
                       v = at::randn({kTokens, kHeads, kSize}).to(type);
      // A block more than is used: kernels read some bytes behind a row.
      at::Tensor keys = at::zeros({20, kBlock, kHeads, kSize + ops::kCacheScale}, codes), values = keys.clone();
      ops::store_kv(k, v, keys, values, slots);
      const auto plain = [&](const at::Tensor& cache) {
        const at::Tensor rows = cache.view({-1, kHeads, kSize + ops::kCacheScale}).narrow(0, 0, kTokens),
                         scale = rows.narrow(2, kSize, ops::kCacheScale).contiguous().view(at::kFloat);
        at::Tensor number = rows.narrow(2, 0, kSize).to(at::kFloat).contiguous();
        for (int64_t i = 0; codes == at::kByte && i < number.numel(); ++i)
          number.data_ptr<float>()[i] = quant::from_e4m3(static_cast<uint8_t>(number.data_ptr<float>()[i]));
        return (number * scale).to(type);
      };
      const ops::AttentionRule rule{0.12, {true, 0}};
      const auto over = [&](const at::Tensor& inside) {
        return ops::paged_attention(q, keys, inside, ints(cu), ints(cu), table, kTokens, kTokens, rule);
      };
      const at::Tensor near_k = plain(keys), near_v = plain(values);
      EXPECT_LT(error(near_k, k.to(at::kDouble)), codes == at::kChar ? 0.01 : 0.05);
      EXPECT_TRUE(over(values).equal(ops::attention(q, near_k, near_v, ints(cu), ints(cu), kTokens, kTokens, rule)));
      // Values that are the front of the keys.
      EXPECT_TRUE(
          over(keys.narrow(3, 0, 56))
              .equal(ops::attention(q, near_k, near_k.narrow(2, 0, 56), ints(cu), ints(cu), kTokens, kTokens, rule)));
    }
}

// The same keys give the same bits for a query that comes alone, with its neighbours, or among other sequences.
TEST_P(CpuKernels, PagedAttentionDoesNotDependOnTheBatch) {
  for (const auto type : kTypes)
    for (const int64_t window : {0, 200}) {
      const std::vector<int32_t> cu = {0, 700, 1300};
      const at::Tensor q = at::randn({1300, 6, 64}).to(type), k = at::randn({1300, 2, 64}).to(type),
                       v = at::randn({1300, 2, 64}).to(type);
      const Paged cache(k, v, cu, 16);
      const ops::AttentionRule rule{0.125, {true, window}};
      const at::Tensor all =
          ops::paged_attention(q, cache.k_cache, cache.v_cache, ints(cu), ints(cu), cache.table, 700, 700, rule);
      for (const auto& [end, rows] : std::vector<std::pair<int32_t, int32_t>>{
               {1, 1}, {33, 1}, {129, 1}, {600, 1}, {600, 5}, {600, 70}, {600, 333}, {513, 2}}) {
        const at::Tensor alone =
            ops::paged_attention(q.narrow(0, 700 + end - rows, rows), cache.k_cache, cache.v_cache, ints({0, rows}),
                                 ints({0, end}), cache.table.narrow(0, 1, 1), rows, end, rule);
        EXPECT_TRUE(alone.equal(all.narrow(0, 700 + end - rows, rows)))
            << rows << " queries up to key " << end << ", window " << window;
      }
    }
}

}  // namespace
}  // namespace apus::cpu
