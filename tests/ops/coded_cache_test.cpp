// SPDX-License-Identifier: Apache-2.0
// Keys and values in codes of eight bits: what a device stores is what the processor does, and attention over it is
// that over the numbers which the codes stand for.
#include "ops/coded_cache.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include "tests/ops/devices.h"

namespace apus::ops::test {
namespace {

constexpr int64_t kBlocks = 7, kBlock = 16, kHeads = 2, kSize = 32;

at::Tensor blank(at::ScalarType codes, c10::Device where, int64_t size = kSize, int64_t heads = kHeads) {
  return at::full({kBlocks, kBlock, heads, size + kCacheScale}, 0x55, at::TensorOptions().dtype(codes)).to(where);
}

// Of all sizes, a head of zeros, and numbers between two codes.
at::Tensor heads_of(int64_t tokens, uint64_t seed, int64_t size = kSize) {
  at::Tensor x = normal({tokens, kHeads, size}, seed) * at::tensor({1e-3, 40.0}, at::kDouble).view({1, 2, 1});
  x[1][0].zero_();
  x[2][1].copy_(at::tensor({127.0, 2.5, -3.5, 0.5}, at::kDouble).repeat({size / 4}));
  return x.to(at::kFloat);
}

class CodedCache : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(CodedCache, HoldsWhatTheProcessorDoes) {
  const at::Tensor k = heads_of(20, 1), v = heads_of(20, 2),
                   slot = at::cat(
                       {at::tensor({17, 40, -1}, at::kLong), at::tensor({3, 4, 5}, at::kLong),
                        at::tensor({96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 111}, at::kLong)});
  at::Tensor k_here = blank(GetParam(), at::kCPU), v_here = k_here.clone();
  store_kv(k, v, k_here, v_here, slot);
  const auto there = device().device;
  at::Tensor k_there = blank(GetParam(), there), v_there = k_there.clone();
  store_kv(k.to(there), v.to(there), k_there, v_there, slot.to(there));
  EXPECT_TRUE(k_there.to(at::kCPU).equal(k_here));
  EXPECT_TRUE(v_there.to(at::kCPU).equal(v_here));
  EXPECT_FALSE(k_here.equal(v_here));
  const at::Tensor rows = k_here.view({-1, kHeads, kSize + kCacheScale}).index_select(0, slot.narrow(0, 3, 17));
  EXPECT_TRUE(coded_heads(k.narrow(0, 3, 17), GetParam()).equal(rows)) << "the composed operators";
}

TEST_P(CodedCache, StandsForItsNumbers) {
  const at::Tensor k = heads_of(kBlocks * kBlock, 3);
  at::Tensor cache = blank(GetParam(), at::kCPU), other = cache.clone();
  store_kv(k, k, cache, other, at::arange(kBlocks * kBlock));
  const at::Tensor block = at::tensor({5, 0}, at::kLong);
  const auto there = device().device;
  const at::Tensor got = plain_blocks(cache.to(there), block.to(there), at::kFloat).to(at::kCPU);
  const at::Tensor want = k.view({kBlocks, kBlock, kHeads, kSize}).index_select(0, block);
  const at::Tensor most = want.abs().amax(-1, /*keepdim=*/true);
  // Half a step: of 127 to the largest number; of eight to a number's power of two, and of the least ones.
  const at::Tensor step = GetParam() == at::kChar ? most / 254 : (want.abs() / 16).maximum(most / 448 / 1024);
  EXPECT_TRUE((got - want).abs().le(step * 1.0001 + 1e-12).all().item<bool>());
}

// Prompts, single tokens, a window; values that are a part of the keys.
TEST_P(CodedCache, AttentionIsThatOverItsNumbers) {
  const auto there = device().device;
  const at::Tensor cu_q = at::tensor({0, 1, 10, 11}, at::kInt), cu_k = at::tensor({0, 33, 42, 43}, at::kInt),
                   table = at::tensor({4, 1, 6, 2, 0, 0, 3, 0, 0}, at::kInt).view({3, 3});
  for (const bool part : {false, true})
    for (const auto type : dtypes()) {
      if (type == at::kDouble) continue;
      SCOPED_TRACE(str(c10::toString(type), part ? ", values in keys" : ""));
      at::Tensor k_cache = blank(GetParam(), at::kCPU), v_cache = k_cache.clone();
      const at::Tensor slot = at::arange(kBlocks * kBlock);
      store_kv(normal({kBlocks * kBlock, kHeads, kSize}, 4).to(at::kFloat),
               normal({kBlocks * kBlock, kHeads, kSize}, 5).to(at::kFloat), k_cache, v_cache, slot);
      const at::Tensor q = normal({11, 4, kSize}, 6).to(type), all = at::arange(kBlocks);
      const at::Tensor keys = plain_blocks(k_cache, all, at::kFloat), values = plain_blocks(v_cache, all, at::kFloat);
      AttentionRule rule;
      rule.scale = 0.2, rule.mask = {true, part ? 0 : 20};
      const at::Tensor want = paged_attention(q.to(at::kFloat), keys, part ? keys.narrow(3, 0, 24) : values, cu_q, cu_k,
                                              table, 9, 33, rule);
      k_cache = k_cache.to(there), v_cache = part ? k_cache.narrow(3, 0, 24) : v_cache.to(there);
      const at::Tensor got =
          paged_attention(q.to(there), k_cache, v_cache, cu_q.to(there), cu_k.to(there), table.to(there), 9, 33, rule);
      ASSERT_EQ(got.sizes(), want.sizes());
      const double rounding = type == at::kFloat ? 1e-5 : type == at::kHalf ? 2e-3 : 1.5e-2;
      EXPECT_LT((got.to(at::kCPU, at::kFloat) - want).abs().max().item<double>(), rounding * 3);
    }
}

INSTANTIATE_TEST_SUITE_P(Codes, CodedCache, ::testing::Values(at::kChar, at::kByte),
                         [](const auto& info) { return info.param == at::kChar ? "int8" : "fp8"; });

}  // namespace
}  // namespace apus::ops::test
