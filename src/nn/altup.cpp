// SPDX-License-Identifier: Apache-2.0
#include "nn/altup.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <c10/core/GradMode.h>

#include "nn/state_layer.h"
#include "ops/ops.h"

namespace apus {

namespace {
Linear::Spec square(int64_t in, int64_t out) { return {.in = in, .out = out}; }

// As it is trained: the weight itself is kept within the bound, and its gradient is not.
void keep_within(Linear& linear, double bound) {
  Param& weight = linear.weight();
  if (bound > 0 && at::GradMode::is_enabled() && weight.data.requires_grad())
    weight.data.variable_data().clamp_(-bound, bound);
}
}  // namespace

AltUp::AltUp(const AltUpForm& form, int64_t hidden, NormSpec norm)
    : form_(form),
      narrowed_(1 / static_cast<double>(hidden)),
      scale_(param("correct_output_scale", {hidden})),
      correction_(child<Linear>("correction_coefs", square(form.count, form.count))),
      prediction_(child<Linear>("prediction_coefs", square(form.count, form.count * form.count))),
      router_(child<Linear>("modality_router", square(hidden, form.count))),
      norm_(child<Norm>("router_norm", hidden, norm)) {}

at::Tensor AltUp::kinds(const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor said_TS = router_(norm_(x_TD) * narrowed_, s);
  return at::tanh(widened(said_TS)).to(x_TD.scalar_type());
}

at::Tensor AltUp::foretold(const at::Tensor& streams_TW, const Step& s) const {
  const int64_t tokens = streams_TW.size(0), n = form_.count;
  const at::Tensor streams_TSD = streams_TW.view({tokens, n, -1});
  keep_within(prediction_, form_.bound);
  const at::Tensor share_TSS = prediction_(kinds(streams_TSD.select(1, form_.active), s), s).view({tokens, n, n});
  return streams_TSD + at::matmul(share_TSS, streams_TSD);
}

at::Tensor AltUp::corrected(const at::Tensor& foretold_TSD, const at::Tensor& made_TD, const Step& s) const {
  keep_within(correction_, form_.bound);
  const at::Tensor share_TS = correction_(kinds(made_TD, s), s) + 1;
  const at::Tensor news_TD = made_TD - foretold_TSD.select(1, form_.active);
  return foretold_TSD + share_TS.unsqueeze(-1) * news_TD.unsqueeze(1);
}

at::Tensor AltUp::opening(const at::Tensor& corrected_TSD) const {
  const at::Tensor active_TD = corrected_TSD.select(1, form_.active);
  return form_.scaled ? active_TD * scale_.data : active_TD;
}

at::Tensor AltUp::with_added(const at::Tensor& corrected_TSD, const at::Tensor& added_TD) {
  const int64_t others = corrected_TSD.size(1) - 1;
  const at::Tensor more = corrected_TSD.narrow(1, 1, others) + added_TD.unsqueeze(1);
  return at::cat({corrected_TSD.narrow(1, 0, 1), more}, 1).flatten(1);
}

NarrowPath::NarrowPath(int64_t hidden, int64_t rank, NormSpec norm)
    : left_(child<Linear>("linear_left", square(hidden, rank))),
      right_(child<Linear>("linear_right", square(rank, hidden))),
      norm_(child<Norm>("post_laurel_norm", hidden, norm)) {}

at::Tensor NarrowPath::operator()(const at::Tensor& x_TD, const Step& s) const {
  return x_TD + norm_(right_(left_(x_TD, s), s));
}

namespace {
at::Tensor size_of(const at::Tensor& x_TD) { return widened(x_TD).square().mean(-1, /*keepdim=*/true); }

at::Tensor of_size(const at::Tensor& x_TD, const at::Tensor& wanted_T1) {
  return (widened(x_TD) * (wanted_T1 / size_of(x_TD).clamp_min(1e-5).sqrt())).to(x_TD.scalar_type());
}
}  // namespace

at::Tensor streams_of(const at::Tensor& x_TD, const std::vector<Linear*>& matrices, const Step& s) {
  const at::Tensor wanted_T1 = size_of(x_TD).sqrt();
  std::vector<at::Tensor> streams{x_TD};
  for (const Linear* each : matrices) streams.push_back(of_size((*each)(x_TD, s), wanted_T1));
  return at::cat(streams, 1);
}

at::Tensor PlainMatrix::operator()(const at::Tensor& x_TD) const { return ops::linear(x_TD, weight_.data, {}); }

at::Tensor one_of(const at::Tensor& streams_TW, const std::vector<PlainMatrix*>& matrices) {
  const auto count = static_cast<int64_t>(matrices.size()) + 1, hidden = streams_TW.size(1) / count;
  const at::Tensor first_TD = streams_TW.narrow(1, 0, hidden), wanted_T1 = size_of(first_TD).sqrt();
  at::Tensor sum_TD = first_TD;
  for (int64_t i = 1; i < count; ++i) {
    const at::Tensor own_TD = streams_TW.narrow(1, i * hidden, hidden).contiguous();
    sum_TD = sum_TD + of_size((*matrices[static_cast<size_t>(i - 1)])(own_TD), wanted_T1);
  }
  return sum_TD * (1.0 / static_cast<double>(count));
}

}  // namespace apus
