// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences by the flash attention inside libtorch, called by name: its arguments differ between
// versions, and only those that know a window (2.5 and later) are used. What it does not take goes to the reference.
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "devices/cuda/ops.h"
#include "devices/vendor_op.h"
#include "ops/attention_signature.h"
#include "ops/op.h"

namespace apus::cuda {

namespace {

using namespace ops::attention_signature;

const VendorOp& flash() {
  static const VendorOp op("aten::_flash_attention_forward");
  return op;
}
const VendorOp& flash_backward() {
  static const VendorOp op("aten::_flash_attention_backward");
  return op;
}

bool usable() {
  const auto key = c10::DispatchKey::CUDA;
  return flash().present(key) && flash_backward().present(key) && flash().takes("window_size_left") &&
         flash_backward().takes("window_size_left");
}

bool takes(const at::Tensor& q, const at::Tensor& v, bool causal, int64_t window, double softcap,
           const OptionalTensor& sinks) {
  if (softcap > 0 || sinks.has_value()) return false;
  const bool half = q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16;
  return half && q.size(2) % 8 == 0 && q.size(2) <= 256 && v.size(2) == q.size(2) && (causal || window == 0);
}

VendorOp::Named arguments(double scale, int64_t window) {
  VendorOp::Named named{{"scale", scale}};
  if (window > 0) named.emplace_back("window_size_left", window - 1), named.emplace_back("window_size_right", 0);
  return named;
}

// The second result is the operator's own log-sum-exp, in a layout of its version: only the gradient reads it.
Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
             const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window,
             double softcap, const OptionalTensor& sinks) {
  if (!takes(q, v, causal, window, softcap, sinks)) {
    static const auto reference = ops::handle<Forward>("apus::attention");
    return ops::call_reference(reference, q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
  }
  const auto out = flash()({q.contiguous(), k.contiguous(), v.contiguous(), cu_q, cu_k, max_q, max_k, /*dropout_p=*/0.0,
                            causal, /*return_debug_mask=*/false},
                           arguments(scale, window));
  return {tensor(out[0]), tensor(out[1])};
}

Triple backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& cu_q, const at::Tensor& cu_k,
                int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window, double softcap,
                const OptionalTensor& sinks) {
  if (!takes(q, v, causal, window, softcap, sinks)) {
    static const auto reference = ops::handle<Backward>("apus::attention_backward");
    return ops::call_reference(reference, grad, q, k, v, out, lse, cu_q, cu_k, max_q, max_k, scale, causal, window,
                               softcap, sinks);
  }
  // The random state, which nothing draws from.
  const at::Tensor no_dropout = at::zeros({2}, cu_q.options().dtype(at::kLong));
  const auto d = flash_backward()({grad.contiguous(), q.contiguous(), k.contiguous(), v.contiguous(), out, lse, cu_q,
                                   cu_k, max_q, max_k, /*dropout_p=*/0.0, causal, no_dropout, no_dropout},
                                  arguments(scale, window));
  return {tensor(d[0]), tensor(d[1]), tensor(d[2])};
}

}  // namespace

void register_ops() {
  // Kept for the life of the process: it removes its kernels when it goes.
  static auto* const library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "apus", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    if (usable()) {
      made->impl("attention", forward);
      made->impl("attention_backward", backward);
    }
    return made;
  }();
  static_cast<void>(library);
}

std::string vendor_name(const std::string& op) {
  return usable() && (op == "attention" || op == "attention_backward") ? "flash attention of libtorch" : "";
}

}  // namespace apus::cuda
