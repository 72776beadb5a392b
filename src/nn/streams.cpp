// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, S streams, D hidden, W = S * D.
#include "nn/streams.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "nn/norm.h"
#include "nn/state_layer.h"
#include "nn/steady.h"
#include "ops/ops.h"

namespace apus {

namespace {
// What the streams together say of themselves, each number for itself.
at::Tensor said(const at::Tensor& streams_TW, const Param& weight, double eps) {
  return ops::linear(rms_alone(widened(streams_TW), eps), widened(weight.data), {});
}
at::Tensor sum_of(const at::Tensor& streams_TW, const at::Tensor& share_TS) {
  const at::Tensor each_TSD = widened(streams_TW).view({streams_TW.size(0), share_TS.size(1), -1});
  return (each_TSD * share_TS.unsqueeze(-1)).sum(1).to(streams_TW.scalar_type());
}
}  // namespace

StreamsMeet::StreamsMeet(const StreamsForm& form, int64_t hidden, double eps)
    : form_(form),
      eps_(eps),
      weight_(param("fn", {form.said(), form.count * hidden})),
      base_(param("base", {form.said()})),
      scale_(param("scale", {form.scales()})) {}

namespace {
// Shares [T, S, S] whose rows and columns sum to 1, columns the more so.
at::Tensor evened(at::Tensor share_TSS, int64_t rounds, double eps) {
  const auto over = [&](int64_t dim) { share_TSS = share_TSS / (share_TSS.sum(dim, /*keepdim=*/true) + eps); };
  over(-2);
  for (int64_t i = 1; i < rounds; ++i) over(-1), over(-2);
  return share_TSS;
}
}  // namespace

StreamsMeet::Read StreamsMeet::read(const at::Tensor& streams_TW) const {
  const int64_t n = form_.count;
  const at::Tensor made_TR = said(streams_TW, weight_, eps_), base = widened(base_.data), scale = widened(scale_.data);
  const auto scaled = [&](int64_t which, int64_t numbers) {
    return made_TR.narrow(1, which * n, numbers) * scale[which] + base.narrow(0, which * n, numbers);
  };
  const at::Tensor one_TD = sum_of(streams_TW, steady_sigmoid(scaled(0, n)) + form_.eps),
                   back_TS = steady_sigmoid(scaled(1, n)) * form_.reach;
  if (form_.rounds == 0) return {one_TD, back_TS + form_.eps, {}};
  const at::Tensor share_TSS = at::softmax(scaled(2, n * n).view({-1, n, n}), -1) + form_.eps;
  return {one_TD, back_TS, evened(share_TSS, form_.rounds, form_.eps)};
}

at::Tensor StreamsMeet::given_back(const at::Tensor& streams_TW, const Read& read, const at::Tensor& given_TD) const {
  const at::Tensor each_TSD = read.back_TS.unsqueeze(-1) * widened(given_TD).unsqueeze(1);
  at::Tensor kept_TW = widened(streams_TW);
  if (read.mix_TSS.defined())
    kept_TW = at::matmul(read.mix_TSS.transpose(1, 2), kept_TW.view({kept_TW.size(0), form_.count, -1})).flatten(1);
  return (kept_TW + each_TSD.flatten(1)).to(streams_TW.scalar_type());
}

StreamsEnd::StreamsEnd(const StreamsForm& form, int64_t hidden, double eps)
    : form_(form),
      eps_(eps),
      weight_(param("hc_fn", {form.count, form.count * hidden})),
      base_(param("hc_base", {form.count})),
      scale_(param("hc_scale", {1})) {}

at::Tensor StreamsEnd::operator()(const at::Tensor& streams_TW) const {
  const at::Tensor made_TS = said(streams_TW, weight_, eps_);
  return sum_of(streams_TW, steady_sigmoid(made_TS * widened(scale_.data) + widened(base_.data)) + form_.eps);
}

}  // namespace apus
