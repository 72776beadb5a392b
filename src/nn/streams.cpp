// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, S streams, D hidden, W = S * D.
#include "nn/streams.h"

#include <ATen/TensorOperators.h>

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
      weight_(param("fn", {2 * form.count, form.count * hidden})),
      base_(param("base", {2 * form.count})),
      scale_(param("scale", {2})) {}

StreamsMeet::Read StreamsMeet::read(const at::Tensor& streams_TW) const {
  const int64_t n = form_.count;
  const at::Tensor made_TR = said(streams_TW, weight_, eps_), base = widened(base_.data), scale = widened(scale_.data);
  const auto share = [&](int64_t which) {
    return steady_sigmoid(made_TR.narrow(1, which * n, n) * scale[which] + base.narrow(0, which * n, n));
  };
  return {sum_of(streams_TW, share(0) + form_.eps), share(1) * form_.reach + form_.eps};
}

at::Tensor StreamsMeet::given_back(const at::Tensor& streams_TW, const at::Tensor& back_TS,
                                   const at::Tensor& given_TD) const {
  const at::Tensor each_TSD = back_TS.unsqueeze(-1) * widened(given_TD).unsqueeze(1);
  return (widened(streams_TW) + each_TSD.flatten(1)).to(streams_TW.scalar_type());
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
