// SPDX-License-Identifier: Apache-2.0
// Rows that lie in runs, each run multiplied by a matrix of its own. The reference multiplies once for every run that
// has rows, by the device's own linear layers; it reads on the host where the runs end.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "base/error.h"
#include "ops/expert_pairs.h"
#include "ops/op.h"

namespace apus::ops {
namespace {

using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

bool one_stack(at::TensorList weight) { return weight.size() == 1 && weight[0].dim() == 3; }
at::Tensor matrix(at::TensorList weight, int64_t e) {
  return one_stack(weight) ? weight[0][e] : weight[static_cast<size_t>(e)];
}
std::vector<int64_t> stack_sizes(at::TensorList weight) {  // E, O, I
  if (one_stack(weight)) return weight[0].sizes().vec();
  return {static_cast<int64_t>(weight.size()), weight[0].size(0), weight[0].size(1)};
}

// fn(expert, first row, rows) of every run that has rows.
template <class Fn>
void for_runs(const at::Tensor& ends, const Fn& fn) {
  const at::Tensor host = ends.to(at::kCPU, at::kLong).contiguous();
  const int64_t* end = host.data_ptr<int64_t>();
  for (int64_t e = 0, begin = 0; e < host.numel(); begin = end[e++])
    if (end[e] > begin) fn(e, begin, end[e] - begin);
}

at::Tensor forward(const at::Tensor& x, at::TensorList weight, const at::Tensor& ends) {
  static const auto linear =
      handle<at::Tensor(const at::Tensor&, const at::Tensor&, const OptionalTensor&)>("apus::linear");
  at::Tensor y = at::empty({x.size(0), stack_sizes(weight)[1]}, x.options());
  for_runs(ends, [&](int64_t e, int64_t begin, int64_t n) {
    y.narrow(0, begin, n).copy_(linear.call(x.narrow(0, begin, n), matrix(weight, e), {}));
  });
  return y;
}

Pair backward(const at::Tensor& grad, const OptionalTensor& x, at::TensorList weight, const at::Tensor& ends,
              std::array<bool, 2> need) {
  static const auto linear =
      handle<Triple(const at::Tensor&, const OptionalTensor&, const OptionalTensor&, std::array<bool, 3>)>(
          "apus::linear_backward");
  const auto sizes = stack_sizes(weight);
  at::Tensor dx, dweight;
  if (need[0]) dx = at::empty({grad.size(0), sizes[2]}, grad.options());
  if (need[1]) dweight = at::zeros(sizes, grad.options());
  for_runs(ends, [&](int64_t e, int64_t begin, int64_t n) {
    const at::Tensor g = grad.narrow(0, begin, n);
    const OptionalTensor rows = need[1] ? OptionalTensor(x->narrow(0, begin, n)) : OptionalTensor();
    const auto [dx_run, dweight_run, none] = linear.call(g, rows, matrix(weight, e), {need[0], need[1], false});
    if (need[0]) dx.narrow(0, begin, n).copy_(dx_run);
    if (need[1]) dweight[e].copy_(dweight_run);
  });
  return {dx, dweight};
}

at::Tensor forward_shape(const at::Tensor& x, at::TensorList weight, const at::Tensor&) {
  return at::empty({x.size(0), stack_sizes(weight)[1]}, x.options());
}
Pair backward_shape(const at::Tensor& grad, const OptionalTensor&, at::TensorList weight, const at::Tensor&,
                    std::array<bool, 2> need) {
  const auto sizes = stack_sizes(weight);
  return {need[0] ? at::empty({grad.size(0), sizes[2]}, grad.options()) : at::Tensor(),
          need[1] ? at::empty(sizes, grad.options()) : at::Tensor()};
}

const auto& forward_op() {
  static const auto op = handle<decltype(forward)>("apus::grouped_linear");
  return op;
}
const auto& backward_op() {
  static const auto op = handle<decltype(backward)>("apus::grouped_linear_backward");
  return op;
}

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const at::Tensor& ends,
                            at::TensorList weight) {
    const BelowAutograd guard;
    const bool trained = one_stack(weight) && weight[0].requires_grad();
    torch::autograd::variable_list kept{ends, trained ? x : at::Tensor()};
    kept.insert(kept.end(), weight.begin(), weight.end());
    ctx->save_for_backward(kept);
    return forward_op().call(x, weight, ends);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    const auto kept = ctx->get_saved_variables();
    torch::autograd::variable_list out(kept.size());  // x, ends, weights
    const bool trained = kept[1].defined();
    const auto [dx, dweight] = backward_op().call(grad[0], maybe(kept[1]), at::TensorList(kept).slice(2), kept[0],
                                                  {ctx->needs_input_grad(0), trained});
    out[0] = dx;
    if (trained) out[2] = dweight;
    return out;
  }
};

at::Tensor autograd(const at::Tensor& x, at::TensorList weight, const at::Tensor& ends) {
  const bool trained = at::GradMode::is_enabled() &&
                       std::any_of(weight.begin(), weight.end(), [](const at::Tensor& w) { return w.requires_grad(); });
  require(!trained || one_stack(weight), Fault::Bug, "grouped_linear has no gradient of matrices that are no stack");
  if (trained || any_requires_grad(x)) return GroupedLinear::apply(x, ends, weight);
  const BelowAutograd guard;
  return forward_op().call(x, weight, ends);
}

}  // namespace

at::Tensor grouped_linear(const at::Tensor& x_MI, at::TensorList weight, const at::Tensor& ends_E) {
  return forward_op().call(x_MI, weight, ends_E);
}

Pair grouped_linear_backward(const at::Tensor& grad_MO, const at::Tensor& x_MI, at::TensorList weight,
                             const at::Tensor& ends_E, std::array<bool, 2> need) {
  const BelowAutograd guard;
  return backward_op().call(grad_MO, maybe(x_MI), weight, ends_E, need);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // ends int64 [E]: run e are the rows from ends[e - 1] to ends[e]. weight: one [E, O, I] or E times [O, I].
  m.def("grouped_linear(Tensor x, Tensor[] weight, Tensor ends) -> Tensor");
  // -> dx, dweight [E, O, I], each only when asked. x may be absent when dweight is not asked.
  m.def(
      "grouped_linear_backward(Tensor grad, Tensor? x, Tensor[] weight, Tensor ends, bool[2] need) -> (Tensor, "
      "Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("grouped_linear", apus::ops::forward);
  m.impl("grouped_linear_backward", apus::ops::backward);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("grouped_linear", apus::ops::forward_shape);
  m.impl("grouped_linear_backward", apus::ops::backward_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("grouped_linear", apus::ops::autograd); }
