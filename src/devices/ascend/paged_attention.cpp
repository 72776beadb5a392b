// SPDX-License-Identifier: Apache-2.0
// Attention over the paged cache by npu_fused_infer_attention_score. Layout TND takes heads of 128 in bf16 only, and
// blocks of a cache from CANN 8.3 on; otherwise a step of single tokens is BSND as it lies, and mixed lengths are
// padded to BSND.
#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "devices/ascend/lengths.h"
#include "devices/ascend/offered.h"
#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"
#include "ops/attention_signature.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "tensor/host_copy.h"

namespace apus::ascend {

namespace {

std::vector<int64_t> each(const std::vector<int64_t>& cumulative) {
  std::vector<int64_t> out;
  for (size_t s = 0; s + 1 < cumulative.size(); ++s) out.push_back(cumulative[s + 1] - cumulative[s]);
  return out;
}

struct Lengths {
  std::vector<int64_t> cu_q, q, k;
  int64_t longest = 0;  // queries
  bool equal = false;   // all sequences have that many
};

// The rules of the operator's documentation; `tnd`: that layout is possible.
bool takes(const at::Tensor& q, const at::Tensor& v_cache, const Lengths& n, bool tnd, bool causal, int64_t window) {
  const int64_t block = v_cache.size(1), head = q.size(2), heads = q.size(1), key_heads = v_cache.size(2);
  if (heads > 256 || heads > 64 * key_heads || key_heads * head > 65535) return false;
  if (q.scalar_type() != at::kHalf && q.scalar_type() != at::kBFloat16) return false;
  if (v_cache.scalar_type() != q.scalar_type() || v_cache.size(3) != head || head % 16 != 0 || head > 512) return false;
  if (n.q.empty() || n.q.size() > 4096 || *std::min_element(n.q.begin(), n.q.end()) == 0 ||
      *std::min_element(n.k.begin(), n.k.end()) == 0)
    return false;
  for (size_t s = 0; s < n.q.size(); ++s)
    if (n.q[s] > n.k[s]) return false;
  const int64_t most = *std::max_element(n.k.begin(), n.k.end());
  if (window > 0 && window < most) return false;  // single queries ignore the band
  if (!causal && n.longest > 1) return false;
  if (tnd) return block % 16 == 0 && block <= 1024;
  return n.longest == 1 ? block % 16 == 0 && block <= 512 : block % 128 == 0 && block <= 512;
}

// Rows of [T] for [S, longest] and the way back; rows of padding repeat row 0.
struct Padding {
  at::Tensor in, out;
};
Padding padding(const Lengths& n, at::Device device) {
  std::vector<int64_t> in(n.q.size() * static_cast<size_t>(n.longest), 0), out;
  for (size_t s = 0; s < n.q.size(); ++s)
    for (int64_t i = 0; i < n.q[s]; ++i) {
      const int64_t place = static_cast<int64_t>(s) * n.longest + i;
      in[static_cast<size_t>(place)] = n.cu_q[s] + i;
      out.push_back(place);
    }
  return {at::tensor(in, at::kLong).to(device), at::tensor(out, at::kLong).to(device)};
}

at::Tensor paged(const at::Tensor& q, const at::Tensor& k_cache, const at::Tensor& v_cache, const at::Tensor& cu_q,
                 const at::Tensor& cu_k, const at::Tensor& block_table, int64_t max_q, int64_t max_k, double scale,
                 bool causal, int64_t window, double softcap, const OptionalTensor& sinks) {
  static const auto reference = ops::handle<ops::attention_signature::Paged>("apus::paged_attention");
  if (ops::is_coded(k_cache))
    return ops::call_reference(reference, q, k_cache, v_cache, cu_q, cu_k, block_table, max_q, max_k, scale, causal,
                               window, softcap, sinks);
  const std::vector<int64_t>& host_q = *on_host(cu_q);
  Lengths n{host_q, each(host_q), each(*on_host(cu_k))};
  const Extent e = extent(host_q);
  n.longest = e.longest, n.equal = e.shortest == e.longest;
  const int64_t sequences = static_cast<int64_t>(n.q.size()), heads = q.size(1), head = q.size(2);
  static const bool pages_in_tnd = version_at_least(cann_version(), 8, 3);
  const bool tnd = pages_in_tnd && head == 128 && q.scalar_type() == at::kBFloat16;
  if (softcap > 0 || sinks.has_value() || !takes(q, v_cache, n, tnd, causal, window))
    return ops::call_reference(reference, q, k_cache, v_cache, cu_q, cu_k, block_table, max_q, max_k, scale, causal,
                               window, softcap, sinks);
  static const VendorOp op("npu::npu_fused_infer_attention_score");
  // [B, P, K * H]
  const auto rows = [](const at::Tensor& cache) { return cache.view({cache.size(0), cache.size(1), -1}); };
  VendorOp::Named named{{"block_table", block_table.to(at::kInt).contiguous()},
                        {"actual_seq_lengths_kv", n.k},
                        {"num_heads", heads},
                        {"num_key_value_heads", k_cache.size(2)},
                        {"scale", scale},
                        {"block_size", k_cache.size(1)},
                        {"input_layout", tnd ? "TND" : "BSND"}};
  if (n.longest > 1) {
    named.emplace_back("sparse_mode", kCausalToTheRight);
    named.emplace_back("atten_mask", causal_mask(q.device()));
  }
  named.emplace_back("actual_seq_lengths", tnd ? std::vector<int64_t>(host_q.begin() + 1, host_q.end()) : n.q);
  const auto attend = [&](const at::Tensor& query) {
    return tensor(op({query, rows(k_cache), rows(v_cache)}, named)[0]);
  };
  if (tnd) return attend(q.contiguous());
  if (n.equal) return attend(q.contiguous().view({sequences, n.longest, heads, head})).reshape({-1, heads, head});
  const Padding pad = padding(n, q.device());
  const at::Tensor out = attend(at::index_select(q, 0, pad.in).view({sequences, n.longest, heads, head}));
  return at::index_select(out.reshape({-1, heads, head}), 0, pad.out);
}

// Which places are none is known on the host: the device is not asked for it in every layer.
void store_kv(const at::Tensor& k, const at::Tensor& v, at::Tensor& k_cache, at::Tensor& v_cache,
              const at::Tensor& slot) {
  const HostNumbers places = on_host(slot);
  const bool some = std::any_of(places->begin(), places->end(), [](int64_t place) { return place < 0; });
  if (some || ops::is_coded(k_cache)) {
    static const auto reference = ops::handle<decltype(store_kv)>("apus::store_kv");
    return ops::call_reference(reference, k, v, k_cache, v_cache, slot);
  }
  const at::Tensor place = slot.to(at::kLong);
  for (const auto& [cache, x] : {std::pair{&k_cache, &k}, std::pair{&v_cache, &v}})
    cache->view({-1, cache->size(2), cache->size(3)}).index_copy_(0, place, x->to(cache->scalar_type()));
}

}  // namespace

std::vector<NativeOp> paged_attention_ops() {
  return {native<paged>("paged_attention", {"npu::npu_fused_infer_attention_score"}), native<store_kv>("store_kv", {})};
}

}  // namespace apus::ascend
