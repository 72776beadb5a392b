// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda/flash.h"

#include <ATen/ops/zeros.h>

#include "devices/vendor_op.h"

namespace apus::cuda {

namespace {

const VendorOp& forward_op() {
  static const VendorOp op("aten::_flash_attention_forward");
  return op;
}
const VendorOp& backward_op() {
  static const VendorOp op("aten::_flash_attention_backward");
  return op;
}

VendorOp::Named named(const FlashRule& rule) {
  VendorOp::Named named{{"scale", rule.scale}};
  if (rule.window > 0) {
    named.emplace_back("window_size_left", rule.window - 1);
    named.emplace_back("window_size_right", 0);
  }
  return named;
}

constexpr double kNoDropout = 0.0;

}  // namespace

bool has_flash() {
  const auto key = c10::DispatchKey::CUDA;
  return forward_op().present(key) && backward_op().present(key) && forward_op().takes("window_size_left") &&
         backward_op().takes("window_size_left");
}

bool flash_takes(const at::Tensor& q, int64_t value_size, bool causal, int64_t window, double softcap,
                 const OptionalTensor& sinks) {
  if (softcap > 0 || sinks.has_value() || q.size(0) == 0) return false;
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  return half && q.size(2) % 8 == 0 && q.size(2) <= 256 && value_size == q.size(2) &&
         (causal ? window >= 0 : window == 0);
}

ops::attention_signature::Pair flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const Runs& runs, const FlashRule& rule) {
  const auto out = forward_op()({q.contiguous(), k.contiguous(), v.contiguous(), runs.cu_q, runs.cu_k, runs.max_q,
                                 runs.max_k, kNoDropout, rule.causal, /*return_debug_mask=*/false},
                                named(rule));
  return {tensor(out[0]), tensor(out[1])};
}

ops::attention_signature::Triple flash_backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const at::Tensor& out, const at::Tensor& lse,
                                                const Runs& runs, const FlashRule& rule) {
  // The random state, which nothing draws from.
  const at::Tensor no_dropout = at::zeros({2}, runs.cu_q.options().dtype(at::kLong));
  const auto d = backward_op()({grad.contiguous(), q.contiguous(), k.contiguous(), v.contiguous(), out, lse, runs.cu_q,
                                runs.cu_k, runs.max_q, runs.max_k, kNoDropout, rule.causal, no_dropout, no_dropout},
                               named(rule));
  return {tensor(d[0]), tensor(d[1]), tensor(d[2])};
}

}  // namespace apus::cuda
