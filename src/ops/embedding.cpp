// SPDX-License-Identifier: Apache-2.0
// Rows of a table. The gradient is one dense tensor; the gradients of a token that occurs often are summed in f32.
// Where the table is also the output head, the gradients of the rows are added into the gradient that comes from the
// head, so that no second one exists.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ops/op.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace apus::ops {
namespace {

std::vector<int64_t> out_sizes(const at::Tensor& id, const at::Tensor& weight) {
  std::vector<int64_t> sizes = id.sizes().vec();
  sizes.push_back(weight.size(1));
  return sizes;
}

at::Tensor forward(const at::Tensor& id, const at::Tensor& weight) {
  return weight.index_select(0, id.flatten().to(at::kLong)).view(out_sizes(id, weight));
}

void add_rows(at::Tensor& dense, const at::Tensor& grad, const at::Tensor& id) {
  const at::Tensor g = grad.reshape({-1, grad.size(-1)}), row = id.flatten().to(at::kLong);
  if (row.numel() == 0) return;
  if (g.scalar_type() == wide_type(g)) {
    dense.index_add_(0, row, g);
    return;
  }
  // Half types: the n-th distinct id, in order of size, sums into row n of an f32 table of at most T rows.
  const auto [sorted, order] = at::sort(row);
  at::Tensor starts = at::ones({row.numel()}, row.options());
  starts.narrow(0, 1, row.numel() - 1)
      .copy_(sorted.narrow(0, 1, row.numel() - 1) != sorted.narrow(0, 0, row.numel() - 1));
  const at::Tensor rank = starts.cumsum(0) - 1;
  at::Tensor sums = at::zeros(g.sizes(), g.options().dtype(at::kFloat));
  sums.index_add_(0, rank, g.index_select(0, order).to(at::kFloat));
  const at::Tensor there = widen(dense.index_select(0, sorted));
  dense.index_copy_(0, sorted, sums.index_select(0, rank).add_(there).to(g.scalar_type()));  // equal ids, equal rows
}

at::Tensor backward(const at::Tensor& grad, const at::Tensor& id, int64_t rows) {
  at::Tensor dense = at::zeros({rows, grad.size(-1)}, grad.options());
  add_rows(dense, grad, id);
  return dense;
}

at::Tensor forward_shape(const at::Tensor& id, const at::Tensor& weight) {
  return at::empty(out_sizes(id, weight), weight.options());
}
at::Tensor backward_shape(const at::Tensor& grad, const at::Tensor&, int64_t rows) {
  return at::empty({rows, grad.size(-1)}, grad.options());
}

void add_rows_shape(at::Tensor&, const at::Tensor&, const at::Tensor&) {}

const auto& embedding_op() {
  static const auto op = handle<decltype(forward)>("apus::embedding");
  return op;
}

// -> rows of ids, and the table for whoever else uses it.
struct Embedding : torch::autograd::Function<Embedding> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* ctx, const at::Tensor& id,
                                                const at::Tensor& weight) {
    const BelowAutograd guard;
    ctx->save_for_backward({id});
    ctx->set_materialize_grads(false);
    ctx->saved_data["rows"] = weight.size(0);
    return {embedding_op().call(id, weight), weight.detach()};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    static const auto op = handle<decltype(ops::backward)>("apus::embedding_backward");
    static const auto add = handle<decltype(add_rows)>("apus::embedding_add_rows");
    const BelowAutograd guard;
    const at::Tensor id = ctx->get_saved_variables()[0];
    if (!grad[1].defined()) return {{}, op.call(grad[0], id, ctx->saved_data["rows"].toInt())};
    at::Tensor dense = grad[1].contiguous();
    if (grad[0].defined()) add.call(dense, grad[0], id);
    return {{}, dense};
  }
};

at::Tensor autograd(const at::Tensor& id, const at::Tensor& weight) {
  if (any_requires_grad(weight)) return Embedding::apply(id, weight)[0];
  const BelowAutograd guard;
  return embedding_op().call(id, weight);
}

}  // namespace

at::Tensor embedding(const at::Tensor& id_T, const at::Tensor& weight_VD) {
  if (is_quantised(weight_VD)) return quantised_embedding(id_T, weight_VD);
  return embedding_op().call(id_T, weight_VD);
}

std::tuple<at::Tensor, at::Tensor> embedding_and_table(const at::Tensor& id_T, const at::Tensor& weight_VD) {
  if (!any_requires_grad(weight_VD)) return {embedding(id_T, weight_VD), weight_VD};
  const auto both = Embedding::apply(id_T, weight_VD);
  return {both[0], both[1]};
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("embedding(Tensor id, Tensor weight) -> Tensor");
  // -> the dense gradient [rows, D], of grad's type
  m.def("embedding_backward(Tensor grad, Tensor id, int rows) -> Tensor");
  // dense[id[t]] += grad[t]; each row rounded once
  m.def("embedding_add_rows(Tensor(a!) dense, Tensor grad, Tensor id) -> ()");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("embedding", apus::ops::forward);
  m.impl("embedding_backward", apus::ops::backward);
  m.impl("embedding_add_rows", apus::ops::add_rows);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("embedding", apus::ops::forward_shape);
  m.impl("embedding_backward", apus::ops::backward_shape);
  m.impl("embedding_add_rows", apus::ops::add_rows_shape);
}
TORCH_LIBRARY_IMPL(apus, Autograd, m) { m.impl("embedding", apus::ops::autograd); }
