// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences by libtorch's flash attention. What it does not take goes to the reference.
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include "devices/cuda/flash.h"
#include "devices/cuda/ops.h"
#include "ops/op.h"

namespace apus::cuda {

namespace {

using namespace ops::attention_signature;

// Of older versions the log-sum-exp is filled up to the longest sequence: parts are then the reference's.
bool gives_rows(const at::Tensor& like) {
  static const bool rows = [&] {
    const at::Tensor one = at::zeros({1, 1, 8}, like.options()), ends = at::arange(2, like.options().dtype(at::kInt));
    return std::get<1>(flash_forward(one, one, one, {ends, ends, 1, 1}, {1, true, 0})).dim() == 2;
  }();
  return rows;
}

// kPart: of operators whose log-sum-exp is read by others.
template <bool kPart>
Pair forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& cu_q,
             const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window,
             double softcap, const OptionalTensor& sinks) {
  if (flash_takes(q, v.size(2), causal, window, softcap, sinks) && (!kPart || gives_rows(q)))
    return flash_forward(q, k, v, {cu_q, cu_k, max_q, max_k}, {scale, causal, window});
  static const auto reference = ops::handle<Forward>("apus::attention");
  return ops::call_reference(reference, q, k, v, cu_q, cu_k, max_q, max_k, scale, causal, window, softcap, sinks);
}

template <bool kPart>
Triple backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                const at::Tensor& out, const at::Tensor& lse, const at::Tensor& cu_q, const at::Tensor& cu_k,
                int64_t max_q, int64_t max_k, double scale, bool causal, int64_t window, double softcap,
                const OptionalTensor& sinks) {
  if (flash_takes(q, v.size(2), causal, window, softcap, sinks) && (!kPart || gives_rows(q)))
    return flash_backward(grad, q, k, v, out, lse, {cu_q, cu_k, max_q, max_k}, {scale, causal, window});
  static const auto reference = ops::handle<Backward>("apus::attention_backward");
  return ops::call_reference(reference, grad, q, k, v, out, lse, cu_q, cu_k, max_q, max_k, scale, causal, window,
                             softcap, sinks);
}

}  // namespace

std::vector<OwnOp> attention_ops() {
  if (!has_flash()) return {};
  constexpr const char* kFlash = "flash attention of libtorch";
  return {own<forward<false>>("attention", kFlash), own<backward<false>>("attention_backward", kFlash),
          own<forward<true>>("attention_part", kFlash), own<backward<true>>("attention_part_backward", kFlash)};
}

}  // namespace apus::cuda
