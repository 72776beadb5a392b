// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences and its gradient by npu_fusion_attention, layout TND. What the operator does not take
// goes to the reference.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/log.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>

#include "devices/ascend/lengths.h"
#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"
#include "ops/attention_signature.h"
#include "ops/op.h"
#include "tensor/host_copy.h"

namespace apus::ascend {

namespace {

using namespace ops::attention_signature;

// The operator's arguments for lengths and mask.
struct Call {
  bool fused = false;
  std::vector<int64_t> q, k;  // ends of the sequences
  int64_t sparse_mode = kDense, before = kUnlimited, after = kUnlimited;

  VendorOp::Named arguments(at::Device device) const {
    VendorOp::Named named{{"actual_seq_qlen", q},
                          {"actual_seq_kvlen", k},
                          {"sparse_mode", sparse_mode},
                          {"pre_tockens", before},
                          {"next_tockens", after}};
    if (sparse_mode != kDense) named.emplace_back("atten_mask", causal_mask(device));
    return named;
  }
};

Call plan(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q, const at::Tensor& cu_k,
          bool causal, int64_t window, double softcap, const OptionalTensor& sinks) {
  constexpr int64_t heads = 256, head_size = 768, sequences = 2048;  // the operator's limits
  Call c;
  if (softcap > 0 || sinks.has_value()) return c;
  if (q.size(1) > heads || q.size(2) > head_size || q.size(2) != v.size(2) || cu_q.numel() - 1 > sequences ||
      k.size(0) == 0)
    return c;
  std::vector<int64_t> ends_q = *on_host(cu_q), ends_k = *on_host(cu_k);
  const bool same = ends_q == ends_k;
  if (extent(ends_q).shortest == 0 || extent(ends_k).shortest == 0) return c;
  if (window != 0 && (!causal || !same)) return c;
  // A query before all keys sees nothing under a causal mask; the operator's answer for such a row is not 0.
  for (size_t s = 0; causal && s + 1 < ends_q.size(); ++s)
    if (ends_q[s + 1] - ends_q[s] > ends_k[s + 1] - ends_k[s]) return c;
  if (causal) c.sparse_mode = window > 0 ? kBand : kCausalToTheRight;
  if (window > 0) c.before = window - 1, c.after = 0;
  ends_q.erase(ends_q.begin()), ends_k.erase(ends_k.begin());
  c.q = std::move(ends_q), c.k = std::move(ends_k), c.fused = true;
  return c;
}

// The operator's statistics are [T, N, 8], eight copies of each, in an order of its own (sequence by sequence, head by
// head). max + log(sum) of a copy is the log-sum-exp in the same order; back again, it is a maximum whose sum is 1. So
// only with one sequence do rows and columns of our lse [N, T] mean what they say; nothing but the gradient reads it,
// and attention_part, which puts it in order.
at::Tensor to_lse(const at::Tensor& max_TN8, const at::Tensor& sum_TN8) {
  const at::Tensor lse = max_TN8.select(-1, 0) + at::log(sum_TN8.select(-1, 0));
  return lse.reshape({max_TN8.size(1), max_TN8.size(0)});
}

at::Tensor from_lse(const at::Tensor& lse_NT) {
  return lse_NT.reshape({lse_NT.size(1), lse_NT.size(0), 1}).expand({-1, -1, 8}).contiguous();
}

// Where the number of each query and head [N * T] stands in the operator's order.
at::Tensor places(const std::vector<int64_t>& ends, int64_t heads, at::Device device) {
  std::vector<int64_t> first, length;  // per query: its sequence's first place, plus its own in that; and its length
  int64_t begin = 0;
  for (const int64_t end : ends) {
    for (int64_t i = begin; i < end; ++i) first.push_back(heads * begin + i - begin), length.push_back(end - begin);
    begin = end;
  }
  const auto there = [&](const std::vector<int64_t>& list) { return at::tensor(list, at::kLong).to(device); };
  const at::Tensor head_N1 = at::arange(heads, at::TensorOptions().dtype(at::kLong).device(device)).unsqueeze(1);
  return (there(first) + head_N1 * there(length)).flatten();
}

Pair fused(const Call& c, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale) {
  static const VendorOp op("npu::npu_fusion_attention");
  auto named = c.arguments(q.device());
  named.emplace_back("scale", scale);
  const auto out = op({q.contiguous(), k.contiguous(), v.contiguous(), q.size(1), "TND"}, named);
  return {tensor(out[0]), to_lse(tensor(out[1]), tensor(out[2]))};
}

Triple fused_gradient(const Call& c, const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                      const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse, double scale) {
  static const VendorOp op("npu::npu_fusion_attention_grad");
  auto named = c.arguments(q.device());
  const at::Tensor max = from_lse(lse);
  named.emplace_back("softmax_max", max);
  named.emplace_back("softmax_sum", at::ones_like(max));
  named.emplace_back("attention_in", out);
  named.emplace_back("scale_value", scale);
  const auto d = op({q.contiguous(), k.contiguous(), v.contiguous(), grad.contiguous(), q.size(1), "TND"}, named);
  return {tensor(d[0]), tensor(d[1]), tensor(d[2])};
}

// Part: of attention_part, whose lse is in the order of queries.
template <bool Part>
Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
             const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window,
             double softcap, const OptionalTensor& sinks) {
  const Call c = plan(q, k, v, cu_q, cu_k, causal, window, softcap, sinks);
  if (!c.fused) {
    static const auto reference = ops::handle<Forward>("apus::attention");
    return ops::call_reference(reference, q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
  }
  auto [out, lse] = fused(c, q, k, v, scale);
  if (!Part || c.q.size() == 1) return {out, lse};
  return {out, at::index_select(lse.flatten(), 0, places(c.q, q.size(1), q.device())).view(lse.sizes())};
}

template <bool Part>
Triple backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& cu_q, const at::Tensor& cu_k,
                int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window, double softcap,
                const OptionalTensor& sinks) {
  const Call c = plan(q, k, v, cu_q, cu_k, causal, window, softcap, sinks);
  if (!c.fused) {
    static const auto reference = ops::handle<Backward>("apus::attention_backward");
    return ops::call_reference(reference, grad, q, k, v, out, lse, cu_q, cu_k, max_q, max_k, scale, causal, window,
                               softcap, sinks);
  }
  if (!Part || c.q.size() == 1) return fused_gradient(c, grad, q, k, v, out, lse, scale);
  const at::Tensor own =
      at::empty_like(lse.flatten()).index_copy_(0, places(c.q, q.size(1), q.device()), lse.flatten());
  return fused_gradient(c, grad, q, k, v, out, own.view(lse.sizes()), scale);
}

}  // namespace

std::vector<NativeOp> attention_ops() {
  // They share the lse.
  const std::vector<std::string> both{"npu::npu_fusion_attention", "npu::npu_fusion_attention_grad"};
  return {native<forward<false>>("attention", both), native<backward<false>>("attention_backward", both),
          native<forward<true>>("attention_part", both), native<backward<true>>("attention_part_backward", both)};
}

}  // namespace apus::ascend
