// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gptq_search.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cholesky_inverse.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"

namespace apus {

void Hessian::add(const at::Tensor& x_TI, int64_t sequences) {
  const at::Tensor x = x_TI.to(at::kFloat);
  const auto before = static_cast<double>(sequences_);
  sequences_ += sequences;
  const auto all = static_cast<double>(sequences_);
  if (!matrix_II_.defined()) matrix_II_ = at::zeros({x.size(1), x.size(1)}, x.options());
  matrix_II_.addmm_(x.t(), x, /*beta=*/before / all, /*alpha=*/2 / all);
}

namespace {
constexpr int64_t kColumnsAtOnce = 128;  // columns whose corrections reach those behind them in one product

at::Tensor lower_factor(const at::Tensor& matrix_II, const std::string& name) {
  const auto [factor_II, info] = at::linalg_cholesky_ex(matrix_II);
  require(info.item<int64_t>() == 0, Fault::Model, name, ": the Hessian of its inputs has no inverse. More rows of ",
          "calibration (--quant_n_samples) help");
  return factor_II;
}

// U, upper, with H^-1 = U'U.
at::Tensor inverse_factor(at::Tensor hessian_II, double damp, const std::string& name) {
  at::Tensor diagonal_I = hessian_II.diagonal();
  diagonal_I.add_(diagonal_I.mean() * damp);
  hessian_II = at::cholesky_inverse(lower_factor(hessian_II, name));
  return lower_factor(hessian_II, name).t().contiguous();
}

// Columns in the order in which they are rounded.
class ColumnRounder {
 public:
  ColumnRounder(at::Tensor weight_OI, const at::Tensor& upper_II, const GptqSearch& search,
                const std::vector<int64_t>& order, quant::Integers& out)
      : weight_OI_(std::move(weight_OI)),
        upper_II_(upper_II),
        search_(search),
        order_(order),
        out_(out),
        rows_(weight_OI_.size(0)),
        columns_(weight_OI_.size(1)),
        group_(search.form.group_of(columns_)) {}

  void run() {
    for (int64_t begin = 0; begin < columns_; begin += kColumnsAtOnce) {
      const int64_t count = std::min(kColumnsAtOnce, columns_ - begin), behind = columns_ - begin - count;
      at::Tensor error_OB = at::zeros({rows_, count}, weight_OI_.options());
      float* const error = error_OB.data_ptr<float>();
      at::parallel_for(0, rows_, 8, [&](int64_t first, int64_t last) {
        for (int64_t r = first; r < last; ++r) round_row(r, begin, count, error + r * count);
      });
      if (behind > 0)
        weight_OI_.narrow(1, begin + count, behind)
            .addmm_(error_OB, upper_II_.narrow(0, begin, count).narrow(1, begin + count, behind), 1, -1);
    }
  }

 private:
  void round_row(int64_t r, int64_t begin, int64_t count, float* error) const {
    const float* const weight = weight_OI_.data_ptr<float>() + r * columns_;
    const float* const upper = upper_II_.data_ptr<float>();
    std::vector<float> corrected(weight + begin, weight + begin + count);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t i = begin + k, column = order_[static_cast<size_t>(i)];
      const int64_t g = (search_.fixed_groups ? column : i) / group_;
      const auto at = static_cast<size_t>(g * rows_ + r);
      // Without the corrections of this block, which is how the original takes it.
      if (!search_.fixed_groups && i % group_ == 0)
        keep(at, quant::range_of({weight + i, static_cast<size_t>(std::min(group_, columns_ - i))}, search_.form.bits,
                                 search_.symmetric));
      const quant::Range8 range{out_.scale[at], static_cast<float>(out_.zero[at])};
      const float code = quant::nearest_code(corrected[static_cast<size_t>(k)], range, search_.form.bits);
      out_.code[static_cast<size_t>(r * columns_ + column)] = static_cast<uint8_t>(code);
      const float* const row = upper + i * columns_ + begin;
      error[k] = (corrected[static_cast<size_t>(k)] - range.scale * (code - range.zero)) / row[k];
      for (int64_t j = k; j < count; ++j) corrected[static_cast<size_t>(j)] -= error[k] * row[j];
    }
  }
  void keep(size_t at, const quant::Range8& range) const {
    out_.scale[at] = range.scale, out_.zero[at] = static_cast<uint8_t>(range.zero);
  }

  at::Tensor weight_OI_, upper_II_;
  const GptqSearch& search_;
  const std::vector<int64_t>& order_;
  quant::Integers& out_;
  const int64_t rows_, columns_, group_;
};

}  // namespace

quant::Integers round_by_gptq(const at::Tensor& weight_OI, const at::Tensor& hessian_II, const GptqSearch& search,
                              const std::string& name) {
  at::Tensor weight = weight_OI.to(at::kFloat).clone().contiguous(), hessian = hessian_II.clone();
  require(hessian.isfinite().all().item<bool>(), Fault::Model, name, ": the Hessian of its inputs is not finite: ",
          "the model makes infinities or no numbers of the calibration rows. Is the checkpoint sound?");
  const at::Tensor dead_I = hessian.diagonal() == 0;
  hessian.diagonal().masked_fill_(dead_I, 1);
  weight.masked_fill_(dead_I.unsqueeze(0), 0);

  const quant::Shape shape{weight.size(0), weight.size(1)};
  const int64_t group = search.form.group_of(shape.columns);
  const std::span<const float> numbers(weight.data_ptr<float>(), static_cast<size_t>(weight.numel()));
  quant::Integers out = quant::round_to_integers(numbers, shape, search.form, search.symmetric);

  at::Tensor order_I = at::arange(shape.columns, at::kLong);
  if (search.by_importance) {
    order_I = at::argsort(hessian.diagonal(), /*stable=*/true, 0, /*descending=*/true);
    weight = weight.index_select(1, order_I).contiguous();
    hessian = hessian.index_select(0, order_I).index_select(1, order_I).contiguous();
  }
  const std::vector<int64_t> order(order_I.data_ptr<int64_t>(), order_I.data_ptr<int64_t>() + shape.columns);
  ColumnRounder(weight, inverse_factor(std::move(hessian), search.damp, name), search, order, out).run();
  if (!search.fixed_groups)
    for (int64_t i = 0; i < shape.columns; ++i)
      out.group_of[static_cast<size_t>(order[static_cast<size_t>(i)])] = static_cast<int32_t>(i / group);
  return out;
}

}  // namespace apus
