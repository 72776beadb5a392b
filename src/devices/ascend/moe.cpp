// SPDX-License-Identifier: Apache-2.0
// Mixture of experts by the vendor's operators: routing, tokens sorted by expert, one grouped product for all experts.
#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

#include <array>

#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"
#include "ops/expert_pairs.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::ascend {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Quad = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Pair route(const at::Tensor& logits, int64_t k, bool normalise) {
  static const VendorOp op("npu::npu_moe_gating_top_k_softmax");
  const auto out = op({logits, c10::IValue(), k});  // weights, experts int32, rows
  at::Tensor weight = tensor(out[0]).to(at::kFloat);
  if (normalise) weight = weight / weight.sum(-1, /*keepdim=*/true);
  return {weight.to(logits.scalar_type()), tensor(out[1]).to(at::kLong)};
}

// Token-expert pairs sorted by expert.
struct Sorted {
  Sorted(const at::Tensor& x, const at::Tensor& expert_Tk, int64_t experts) : expert(expert_Tk.to(at::kInt)) {
    static const VendorOp permute("npu::npu_moe_token_permute");
    const auto out = permute({x, expert});
    rows = tensor(out[0]), order = tensor(out[1]);
    ends = ops::ends_of_runs(expert_Tk, experts);  // counted without waiting for the device
  }
  at::Tensor expert, rows, order, ends;
};

// rows [M, K] times weight [E, K, N], each row with its expert's matrix.
at::Tensor grouped(const at::Tensor& rows, const at::Tensor& weight_EKN, const at::Tensor& ends) {
  static const VendorOp op("npu::npu_grouped_matmul");
  const auto out = op({std::vector<at::Tensor>{rows}, std::vector<at::Tensor>{weight_EKN}},
                      {{"group_list", ends}, {"split_item", 2}, {"group_type", 0}, {"group_list_type", 0}});
  return out[0].toTensorVector()[0];
}

// a' b per expert: a [M, K], b [M, N] -> [E, K, N].
at::Tensor grouped_outer(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  static const VendorOp op("npu::npu_grouped_matmul");
  const auto out = op({std::vector<at::Tensor>{a.t()}, std::vector<at::Tensor>{b}},
                      {{"group_list", ends}, {"split_item", 3}, {"group_type", 2}, {"group_list_type", 0}});
  return out[0].toTensorVector()[0];
}

at::Tensor activated(const at::Tensor& both) {
  static const VendorOp op("npu::npu_swiglu");
  return tensor(op({both, -1})[0]);
}

using Ffn = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&);
using FfnBackward = Quad(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, std::array<bool, 4>);

at::Tensor ffn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert, const at::Tensor& gate_up,
               const at::Tensor& down) {
  if (x.size(0) == 0) {
    static const auto reference = ops::handle<Ffn>("apus::moe_ffn");
    return ops::call_reference(reference, x, weight, expert, gate_up, down);
  }
  static const VendorOp unpermute("npu::npu_moe_token_unpermute");
  const Sorted s(x, expert, gate_up.size(0));
  const at::Tensor y =
      grouped(activated(grouped(s.rows, gate_up.transpose(1, 2), s.ends)), down.transpose(1, 2), s.ends);
  return tensor(unpermute({y, s.order, weight.to(x.scalar_type())})[0]);
}

Quad ffn_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert,
                  const at::Tensor& gate_up, const at::Tensor& down, std::array<bool, 4> need) {
  if (x.size(0) == 0) {
    static const auto reference = ops::handle<FfnBackward>("apus::moe_ffn_backward");
    return ops::call_reference(reference, grad, x, weight, expert, gate_up, down, need);
  }
  static const VendorOp unpermute("npu::npu_moe_token_unpermute_grad"), permute("npu::npu_moe_token_permute_grad"),
      swiglu("npu::npu_swiglu_backward");
  const Sorted s(x, expert, gate_up.size(0));
  const at::Tensor both = grouped(s.rows, gate_up.transpose(1, 2), s.ends), a = activated(both);
  const at::Tensor y = grouped(a, down.transpose(1, 2), s.ends);
  const auto d = unpermute({y, grad.contiguous(), s.order, weight.to(x.scalar_type())});
  const at::Tensor dy = tensor(d[0]);
  at::Tensor dx, dweight, dgate_up, ddown;
  if (need[1]) dweight = tensor(d[1]).to(weight.scalar_type());
  if (need[3]) ddown = grouped_outer(dy, a, s.ends);
  if (need[0] || need[2]) {
    const at::Tensor dboth = tensor(swiglu({grouped(dy, down, s.ends), both, -1})[0]);
    if (need[2]) dgate_up = grouped_outer(dboth, s.rows, s.ends);
    if (need[0]) dx = tensor(permute({x, grouped(dboth, gate_up, s.ends), s.expert, s.order})[0]);
  }
  return {dx, dweight, dgate_up, ddown};
}

// The matrices of E experts as one tensor: LoRA factors, which are trained one by one, are put together at the call.
at::Tensor stack_of(at::TensorList weight) {
  return weight.size() == 1 && weight[0].dim() == 3 ? weight[0] : at::stack(weight);
}

at::Tensor linear_in_runs(const at::Tensor& x, at::TensorList weight, const at::Tensor& ends) {
  if (x.size(0) > 0) return grouped(x.contiguous(), stack_of(weight).transpose(1, 2), ends);
  static const auto reference = ops::handle<decltype(linear_in_runs)>("apus::grouped_linear");
  return ops::call_reference(reference, x, weight, ends);
}

Pair linear_in_runs_backward(const at::Tensor& grad, const OptionalTensor& x, at::TensorList weight,
                             const at::Tensor& ends, std::array<bool, 2> need) {
  if (grad.size(0) == 0) {
    static const auto reference = ops::handle<decltype(linear_in_runs_backward)>("apus::grouped_linear_backward");
    return ops::call_reference(reference, grad, x, weight, ends, need);
  }
  const at::Tensor g = grad.contiguous();
  at::Tensor dx, dweight;
  if (need[0]) dx = grouped(g, stack_of(weight), ends);
  if (need[1]) dweight = grouped_outer(g, x->contiguous(), ends);
  return {dx, dweight};
}

}  // namespace

std::vector<NativeOp> moe_ops() {
  const std::vector<std::string> forward{"npu::npu_grouped_matmul", "npu::npu_moe_token_permute",
                                         "npu::npu_moe_token_unpermute", "npu::npu_swiglu"};
  std::vector<std::string> backward = forward;
  backward.insert(backward.end(),
                  {"npu::npu_moe_token_permute_grad", "npu::npu_moe_token_unpermute_grad", "npu::npu_swiglu_backward"});
  return {native<route>("route_topk", {"npu::npu_moe_gating_top_k_softmax"}), native<ffn>("moe_ffn", forward),
          native<ffn_backward>("moe_ffn_backward", backward),
          native<linear_in_runs>("grouped_linear", {"npu::npu_grouped_matmul"}),
          native<linear_in_runs_backward>("grouped_linear_backward", {"npu::npu_grouped_matmul"})};
}

}  // namespace apus::ascend
