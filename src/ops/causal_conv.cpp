// SPDX-License-Identifier: Apache-2.0
// A convolution over the tokens of each channel, which looks back only. Made of rows that are picked: of every token
// the one that stands so many before it in its sequence. Elementwise sums in a fixed order, so a token's bits depend on
// nothing but what it sees.
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/op.h"
#include "ops/state_scan.h"

namespace apus::ops {
namespace {

at::Tensor on_device(const std::vector<int64_t>& rows, const at::Tensor& like) {
  return at::tensor(rows, at::kLong).to(like.device());
}

// Each token's row `lag` before it (behind it, if below 0) in its own sequence; where there is none, `none`.
std::vector<int64_t> rows_at(at::IntArrayRef lengths, int64_t lag, int64_t none) {
  std::vector<int64_t> rows;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) rows.push_back(i - lag >= 0 && i - lag < length ? begin + i - lag : none);
    begin += length;
  }
  return rows;
}

// x with a row of zeros behind it, at these rows.
at::Tensor picked(const at::Tensor& with_zero, at::IntArrayRef lengths, int64_t lag) {
  return at::index_select(with_zero, 0, on_device(rows_at(lengths, lag, with_zero.size(0) - 1), with_zero));
}
at::Tensor with_zero_row(const at::Tensor& x_TC) {
  return at::cat({x_TC, at::zeros({1, x_TC.size(1)}, x_TC.options())}, 0);
}

at::Tensor whole(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C,
                 at::IntArrayRef lengths) {
  const at::Tensor rows = with_zero_row(x_TC);
  const int64_t taps = weight_CJ.size(1);
  at::Tensor y = picked(rows, lengths, taps - 1) * weight_CJ.select(1, 0);
  for (int64_t j = taps - 2; j >= 0; --j) y = y + picked(rows, lengths, j) * weight_CJ.select(1, taps - 1 - j);
  return bias_C.defined() ? y + bias_C : y;
}

struct CausalConv : torch::autograd::Function<CausalConv> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_TC, const at::Tensor& weight_CJ,
                            const OptionalTensor& bias_C, at::IntArrayRef lengths) {
    const BelowAutograd guard;
    ctx->save_for_backward({x_TC, weight_CJ});
    ctx->saved_data["lengths"] = lengths.vec();
    ctx->saved_data["biased"] = bias_C.has_value();
    return whole(x_TC, weight_CJ, or_undefined(bias_C), lengths);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    const auto x = ctx->get_saved_variables();
    const auto lengths = ctx->saved_data["lengths"].toIntVector();
    const int64_t taps = x[1].size(1);
    const at::Tensor rows = with_zero_row(x[0]), grads = with_zero_row(grad[0]);
    at::Tensor dx = at::zeros(x[0].sizes(), x[0].options());
    std::vector<at::Tensor> dweight;
    for (int64_t j = taps - 1; j >= 0; --j) {
      dx = dx + picked(grads, lengths, -j) * x[1].select(1, taps - 1 - j);
      dweight.push_back((picked(rows, lengths, j) * grad[0]).sum(0));
    }
    const bool biased = ctx->saved_data["biased"].toBool();
    return {dx, at::stack(dweight, 1), biased ? grad[0].sum(0) : at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor causal_conv(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C,
                       at::IntArrayRef lengths) {
  if (any_requires_grad(x_TC, weight_CJ, bias_C)) return CausalConv::apply(x_TC, weight_CJ, maybe(bias_C), lengths);
  return whole(x_TC, weight_CJ, bias_C, lengths);
}

at::Tensor causal_conv_on(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C,
                          at::IntArrayRef lengths, const at::Tensor& seat_S, at::Tensor before) {
  const BelowAutograd guard;
  const int64_t taps = weight_CJ.size(1), kept = taps - 1, sequences = seat_S.size(0);
  // Rows: what was before, sequence by sequence, then the tokens of this step.
  const at::Tensor old = at::index_select(before, 0, seat_S);
  const at::Tensor rows = at::cat({old.view({sequences * kept, -1}), x_TC.to(old.scalar_type())}, 0);
  std::vector<int64_t> last, all;
  const auto row = [&](size_t s, int64_t begin, int64_t i) {  // i: in the sequence's step, below 0 before it
    return i >= 0 ? sequences * kept + begin + i : static_cast<int64_t>(s) * kept + kept + i;
  };
  at::Tensor y;
  for (int64_t j = taps - 1; j >= 0; --j) {
    all.clear(), last.clear();
    int64_t begin = 0;
    for (size_t s = 0; s < lengths.size(); begin += lengths[s++]) {
      for (int64_t i = 0; i < lengths[s]; ++i) all.push_back(row(s, begin, i - j));
      for (int64_t i = kept; i > 0; --i) last.push_back(row(s, begin, lengths[s] - i));
    }
    const at::Tensor part = at::index_select(rows, 0, on_device(all, rows)) * weight_CJ.select(1, taps - 1 - j);
    y = y.defined() ? y + part : part;
  }
  before.index_copy_(0, seat_S, at::index_select(rows, 0, on_device(last, rows)).view(old.sizes()));
  return bias_C.defined() ? y + bias_C : y;
}

}  // namespace apus::ops
