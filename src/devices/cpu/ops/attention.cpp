// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences and over a paged cache, forward.
#include "devices/cpu/kernels/attention.h"

#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "devices/cpu/ops/tensors.h"
#include "ops/coded_cache.h"
#include "ops/ops.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

// One piece of work: queries [begin, begin + count) of a sequence.
struct Piece {
  int64_t sequence, begin, count;
};

// Long pieces first: under a causal mask the last queries see the most.
std::vector<Piece> pieces_of(const int32_t* cu_q, int64_t sequences, int64_t at_once) {
  std::vector<Piece> pieces;
  for (int64_t s = 0; s < sequences; ++s) {
    const int64_t rows = cu_q[s + 1] - cu_q[s];
    for (int64_t end = (rows + at_once - 1) / at_once * at_once; end > 0; end -= at_once)
      pieces.push_back({s, end - at_once, std::min(at_once, rows - end + at_once)});
  }
  return pieces;
}

// keys_of(s, kv head) -> {k rows, v rows}; lse may be null.
template <class E, class KeysOf>
void attend_all(const at::Tensor& q, const at::Tensor& out, float* lse, const at::Tensor& cu_q, const at::Tensor& cu_k,
                int64_t kv_heads, View view, const Scores& scores, const float* sinks, const KeysOf& keys_of) {
  require(scores.scale > 0, Fault::Bug, "attention with scale ", scores.scale, ": it must be above 0");
  const int64_t tokens = q.size(0), heads = q.size(1), h = q.size(2), hv = out.size(2), group = heads / kv_heads,
                stride = q.stride(0);
  const int32_t *starts_q = data<int32_t>(cu_q), *starts_k = data<int32_t>(cu_k);
  const auto pieces = pieces_of(starts_q, cu_q.numel() - 1, queries_at_once(group));
  share(static_cast<int64_t>(pieces.size()) * kv_heads, 1, [&](int64_t begin, int64_t end) {
    const Multiplying guard;
    for (int64_t item = begin; item < end; ++item) {
      const Piece& piece = pieces[item / kv_heads];
      const int64_t g = item % kv_heads, first = starts_q[piece.sequence] + piece.begin, head = g * group;
      const int64_t rows = starts_q[piece.sequence + 1] - starts_q[piece.sequence];
      const int64_t keys = starts_k[piece.sequence + 1] - starts_k[piece.sequence];
      const Queries<E> queries{data<E>(q) + first * stride + head * h,
                               data<E>(out) + (first * heads + head) * hv,
                               lse ? lse + head * tokens + first : nullptr,
                               piece.count,
                               group,
                               h,
                               hv,
                               stride,
                               h,
                               heads * hv,
                               hv,
                               1,
                               tokens,
                               keys - rows + piece.begin,
                               1,
                               sinks ? sinks + head : nullptr};
      const auto [k, v] = keys_of(piece.sequence, g);
      Attend<E>(queries, k, v, keys, view, scores).run();
    }
  });
}

using Pair = std::tuple<at::Tensor, at::Tensor>;

at::Tensor wide_sinks(const OptionalTensor& sinks) {
  return sinks.has_value() ? sinks->to(at::kFloat).contiguous() : at::Tensor();
}
const float* pointer(const at::Tensor& sinks) { return sinks.defined() ? data<float>(sinks) : nullptr; }
// Rows of one key-value head are `stride` apart, in all pages alike.
void require_pages(const at::Tensor& cache) {
  require(cache.stride(3) == 1 && cache.stride(0) == cache.size(1) * cache.stride(1), Fault::Bug,
          "paged_attention: the tokens of the cache must lie evenly");
}

Pair attention(const at::Tensor& q_TNH, const at::Tensor& k_TKH, const at::Tensor& v_TKH, const at::Tensor& cu_q,
               const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window,
               double softcap, const OptionalTensor& sinks) {
  if (!same_small_float(q_TNH, k_TKH, v_TKH))
    return Reference<decltype(attention)>::call("apus::attention", q_TNH, k_TKH, v_TKH, cu_q, cu_k, max_q, max_k, scale,
                                                causal, window, softcap, sinks);
  const at::Tensor q = as_heads(q_TNH), k = as_heads(k_TKH), v = as_heads(v_TKH);
  const at::Tensor out = at::empty({q.size(0), q.size(1), v.size(2)}, q.options()),
                   lse = at::empty({q.size(1), q.size(0)}, q.options().dtype(at::kFloat)), sink = wide_sinks(sinks);
  by_type(q, [&](auto e) {
    using E = decltype(e);
    const int32_t* starts = data<int32_t>(cu_k);
    const auto keys_of = [&](int64_t s, int64_t g) {
      const int64_t first = starts[s];
      return std::pair(Rows<E>{data<E>(k) + first * k.stride(0) + g * k.size(2), k.stride(0)},
                       Rows<E>{data<E>(v) + first * v.stride(0) + g * v.size(2), v.stride(0)});
    };
    attend_all<E>(q, out, data<float>(lse), cu_q, cu_k, k.size(1), {causal, window}, {scale, softcap}, pointer(sink),
                  keys_of);
  });
  return {out, lse};
}

template <class E>
Rows<E> pages_of(const at::Tensor& cache, int64_t head, const int32_t* pages) {
  Rows<E> rows{nullptr, cache.stride(1), pages, cache.size(1)};
  if (ops::is_coded(cache))
    rows.codes = static_cast<const uint8_t*>(cache.data_ptr()) + head * cache.stride(2),
    rows.scale_at = cache.stride(2) - ops::kCacheScale, rows.whole = cache.scalar_type() == at::kChar;
  else
    rows.base = data<E>(cache) + head * cache.stride(2);
  return rows;
}

at::Tensor paged_attention(const at::Tensor& q_TNH, const at::Tensor& k_cache, const at::Tensor& v_cache,
                           const at::Tensor& cu_q, const at::Tensor& cu_k, const at::Tensor& block_table, int64_t max_q,
                           int64_t max_k, double scale, bool causal, int64_t window, double softcap,
                           const OptionalTensor& sinks) {
  const bool coded = ops::is_coded(k_cache) && same_small_float(q_TNH, q_TNH);
  if (!coded && !same_small_float(q_TNH, k_cache, v_cache))
    return Reference<decltype(paged_attention)>::call("apus::paged_attention", q_TNH, k_cache, v_cache, cu_q, cu_k,
                                                      block_table, max_q, max_k, scale, causal, window, softcap, sinks);
  const at::Tensor q = as_heads(q_TNH), out = at::empty({q.size(0), q.size(1), ops::head_size(v_cache)}, q.options()),
                   table = block_table.to(at::kInt).contiguous(), sink = wide_sinks(sinks);
  require_pages(k_cache), require_pages(v_cache);
  by_type(q, [&](auto e) {
    using E = decltype(e);
    const auto keys_of = [&](int64_t s, int64_t g) {
      const int32_t* pages = data<int32_t>(table) + s * table.size(1);
      return std::pair(pages_of<E>(k_cache, g, pages), pages_of<E>(v_cache, g, pages));
    };
    attend_all<E>(q, out, nullptr, cu_q, cu_k, k_cache.size(2), {causal, window}, {scale, softcap}, pointer(sink),
                  keys_of);
  });
  return out;
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("attention", apus::cpu::attention);
  m.impl("attention_part", apus::cpu::attention);
  m.impl("paged_attention", apus::cpu::paged_attention);
}
