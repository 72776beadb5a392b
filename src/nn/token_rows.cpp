// SPDX-License-Identifier: Apache-2.0
#include "nn/token_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

namespace apus {

TokenRows::TokenRows(const std::vector<int64_t>& rows, int64_t words, const at::Tensor& before, bool looks_up)
    : looks_up_(looks_up),
      words_(words),
      row_N(at::tensor(rows, at::kLong).to(before.device())),
      before_ND(before),
      rows_(param("token_adapter.trainable_tokens_delta", before.sizes().vec())) {
  if (!looks_up) return;
  const int64_t n = row_N.size(0);
  place_V = at::full({words}, n, row_N.options()).index_copy(0, row_N, at::arange(n, row_N.options()));
}

at::Tensor TokenRows::apply(const at::Tensor& x, const at::Tensor& y, const at::Tensor&, const Step&, Memo*) const {
  const auto type = y.scalar_type();
  if (!looks_up_) return at::index_copy(y, 1, row_N.to(x.device()), x.mm(rows_.data.to(type).t()));
  const at::Tensor& own_ND = rows_.data;
  const at::Tensor place_T = at::index_select(place_V.to(x.device()), 0, x),
                   rows_MD = at::cat({own_ND, at::zeros({1, own_ND.size(1)}, own_ND.options())});
  return at::where((place_T < own_ND.size(0)).unsqueeze(1), at::index_select(rows_MD, 0, place_T).to(type), y);
}

at::Tensor TokenRows::merged(const at::Tensor& weight) const {
  at::NoGradGuard no_grad;
  return at::index_copy(weight.to(at::kFloat), 0, row_N.to(weight.device()), rows_.data.to(at::kFloat));
}

// The difference to the table's rows, each in its own column.
std::pair<at::Tensor, at::Tensor> TokenRows::columns(const at::Tensor& x_TD, const Step&) const {
  const at::Tensor change_ND = (rows_.data - before_ND.to(rows_.data.options())).to(x_TD.scalar_type());
  const at::Tensor row = row_N.to(x_TD.device());
  const int64_t n = row.size(0);
  at::Tensor column_VN = at::zeros({words_, n}, x_TD.options());
  column_VN.view(-1).index_fill_(0, row * n + at::arange(n, row.options()), 1);
  return {x_TD.mm(change_ND.t()), column_VN};
}

}  // namespace apus
