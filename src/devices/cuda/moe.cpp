// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: tokens sorted by expert on the device, and libtorch's grouped products (2.8 and later) in bf16,
// so that the host is never asked how many tokens an expert got.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "devices/vendor_op.h"
#include "ops/expert_pairs.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace apus::cuda {

namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Quad = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Ffn = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&);
using FfnBackward = Quad(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, std::array<bool, 4>);
using Linear = at::Tensor(const at::Tensor&, at::TensorList, const at::Tensor&);
using LinearBackward = Pair(const at::Tensor&, const OptionalTensor&, at::TensorList, const at::Tensor&,
                            std::array<bool, 2>);

const VendorOp& grouped_op() {
  static const VendorOp op("aten::_grouped_mm");
  return op;
}

// rows [M, K] times weight [E, K, N], each row with its expert's matrix. ends int32 [E].
at::Tensor grouped(const at::Tensor& rows, const at::Tensor& weight_EKN, const at::Tensor& ends) {
  return tensor(grouped_op()({rows, weight_EKN, ends})[0]);
}

// a' b of each expert's rows: a [M, K], b [M, N] -> [E, K, N]; zero where an expert has none.
at::Tensor grouped_outer(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  const at::Tensor sums = tensor(grouped_op()({a.t(), b, ends})[0]);
  const int64_t experts = ends.size(0);
  const at::Tensor before = at::cat({at::zeros({1}, ends.options()), ends.narrow(0, 0, experts - 1)});
  return sums.masked_fill((ends == before).view({experts, 1, 1}), 0);
}

bool takes_stack(const at::Tensor& weight) {
  return weight.dim() == 3 && weight.scalar_type() == at::kBFloat16 && weight.is_contiguous() && in_packs(weight) &&
         weight.size(1) % 8 == 0;
}
bool takes(const at::Tensor& x, const at::Tensor& gate_up, const at::Tensor& down) {
  return x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && takes_stack(gate_up) && takes_stack(down) &&
         x.size(1) % 8 == 0;
}

// Token-expert pairs in the order of the experts.
struct Sorted {
  Sorted(const at::Tensor& expert_Tk, int64_t experts) : pairs(expert_Tk.numel()), k(expert_Tk.size(1)) {
    const ops::ExpertPairs sorted = ops::pairs_by_expert(expert_Tk, experts);
    order = sorted.pair, token = sorted.token, ends = sorted.ends.to(at::kInt);
  }
  at::Tensor of_pairs(const at::Tensor& x_Tk) const { return x_Tk.reshape({-1}).index_select(0, order); }
  // Rows of pairs summed up by token, times weights [T, k] f32 where there are any.
  at::Tensor summed(const at::Tensor& rows, const at::Tensor& weight_Tk) const {
    static const Kernel kernel("moe", "sum_pairs<bf16>");
    const at::Tensor place = at::empty({pairs}, order.options());
    place.index_copy_(0, order, at::arange(pairs, order.options()));
    const int64_t tokens = pairs / k, size = rows.size(1);
    const at::Tensor y = at::empty({tokens, size}, rows.options());
    kernel(Extent{tokens}, Extent{std::clamp<int64_t>((size / 8 + 31) / 32 * 32, 32, 256)}, address(rows),
           address(place), address(weight_Tk), address(y), static_cast<int>(k), static_cast<int>(size));
    return y;
  }
  int64_t pairs, k;
  at::Tensor order, token, ends;
};

Pair halves(const at::Tensor& both) {
  const int64_t f = both.size(1) / 2;
  return {both.narrow(1, 0, f), both.narrow(1, f, f)};
}

at::Tensor ffn(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert, const at::Tensor& gate_up,
               const at::Tensor& down) {
  if (!takes(x, gate_up, down)) {
    static const auto reference = ops::handle<Ffn>("apus::moe_ffn");
    return ops::call_reference(reference, x, weight, expert, gate_up, down);
  }
  const Sorted s(expert, gate_up.size(0));
  const auto [gate, up] = halves(grouped(x.index_select(0, s.token), gate_up.transpose(1, 2), s.ends));
  const at::Tensor rows = grouped(ops::swiglu(gate, up), down.transpose(1, 2), s.ends);
  return s.summed(rows, weight.to(at::kFloat).contiguous());
}

Quad ffn_backward(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& expert,
                  const at::Tensor& gate_up, const at::Tensor& down, std::array<bool, 4> need) {
  if (!takes(x, gate_up, down) || grad.scalar_type() != at::kBFloat16) {
    static const auto reference = ops::handle<FfnBackward>("apus::moe_ffn_backward");
    return ops::call_reference(reference, grad, x, weight, expert, gate_up, down, need);
  }
  static const auto swiglu_backward =
      ops::handle<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&)>("apus::swiglu_backward");
  const Sorted s(expert, gate_up.size(0));
  const at::Tensor rows = x.index_select(0, s.token), dy = grad.index_select(0, s.token);
  const at::Tensor w = s.of_pairs(weight).to(at::kFloat).unsqueeze(1);
  const auto [gate, up] = halves(grouped(rows, gate_up.transpose(1, 2), s.ends));
  const at::Tensor activated = need[1] || need[3] ? ops::swiglu(gate, up) : at::Tensor();
  const at::Tensor d_activated = grouped(dy, down, s.ends);  // before the pair's weight
  at::Tensor dx, dweight, dgate_up, ddown;
  if (need[1])
    dweight = at::empty({s.pairs}, w.options())
                  .index_copy_(0, s.order, (d_activated.to(at::kFloat) * activated).sum(-1))
                  .view(weight.sizes())
                  .to(weight.scalar_type());
  if (need[3]) ddown = grouped_outer((dy * w).to(at::kBFloat16), activated, s.ends);
  if (need[0] || need[2]) {
    const auto [dgate, dup] = swiglu_backward.call((d_activated * w).to(at::kBFloat16), gate, up);
    const at::Tensor both = at::cat({dgate, dup}, 1);
    if (need[2]) dgate_up = grouped_outer(both, rows, s.ends);
    if (need[0]) dx = s.summed(grouped(both, gate_up, s.ends), {});
  }
  return {dx, dweight, dgate_up, ddown};
}

// The matrices of E experts as one tensor: LoRA factors, which are trained one by one, are put together at the call.
at::Tensor stack_of(at::TensorList weight) {
  return weight.size() == 1 && weight[0].dim() == 3 ? weight[0] : at::stack(weight);
}

at::Tensor linear_in_runs(const at::Tensor& x_in, at::TensorList weight, const at::Tensor& ends) {
  const at::Tensor x = x_in.contiguous(), stack = stack_of(weight);
  if (x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && takes_stack(stack) && in_packs(x))
    return grouped(x, stack.transpose(1, 2), ends.to(at::kInt));
  static const auto reference = ops::handle<Linear>("apus::grouped_linear");
  return ops::call_reference(reference, x_in, weight, ends);
}

Pair linear_in_runs_backward(const at::Tensor& grad_in, const OptionalTensor& x, at::TensorList weight,
                             const at::Tensor& ends, std::array<bool, 2> need) {
  const at::Tensor grad = grad_in.contiguous(), stack = stack_of(weight);
  const bool taken = grad.scalar_type() == at::kBFloat16 && grad.size(0) > 0 && takes_stack(stack) && in_packs(grad) &&
                     (!need[1] || (x->scalar_type() == at::kBFloat16 && in_packs(x->contiguous())));
  if (!taken) {
    static const auto reference = ops::handle<LinearBackward>("apus::grouped_linear_backward");
    return ops::call_reference(reference, grad_in, x, weight, ends, need);
  }
  const at::Tensor narrow_ends = ends.to(at::kInt);
  at::Tensor dx, dweight;
  if (need[0]) dx = grouped(grad, stack, narrow_ends);
  if (need[1]) dweight = grouped_outer(grad, x->contiguous(), narrow_ends);
  return {dx, dweight};
}

}  // namespace

std::vector<OwnOp> moe_ops() {
  if (!grouped_op().present(c10::DispatchKey::CUDA) || !grouped_op().takes("offs")) return {};
  constexpr const char* kGrouped = "grouped products of libtorch";
  return {own<ffn>("moe_ffn", kGrouped), own<ffn_backward>("moe_ffn_backward", kGrouped),
          own<linear_in_runs>("grouped_linear", kGrouped),
          own<linear_in_runs_backward>("grouped_linear_backward", kGrouped)};
}

}  // namespace apus::cuda
