// SPDX-License-Identifier: Apache-2.0
// Shapes: T tokens, N of text, M of media, D hidden.
#include "nn/moe_by_kind.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/index_copy.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isin.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include "dist/mesh.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

namespace {
MoeMlp::Spec without_shared(MoeMlp::Spec spec) {
  spec.shared_ffn = 0;
  return spec;
}

// The rows of this rank's tokens, where ranks share them out.
at::Tensor own_rows(const at::Tensor& rows, const Step& s) {
  const auto& share = training_of(s).tokens;
  return share ? share->places(rows).own : rows;
}

// The step as it is for these of its tokens.
Step of_rows(const at::Tensor& rows, const Step& s) {
  Step part = s;
  for (Step::AdapterRows& group : part.adapters) group.rows = at::isin(rows, group.rows).nonzero().squeeze(1);
  return part;
}

// 0, on the tape of a mixture that no token meets.
at::Tensor nothing(const MoeMlp& mixture, const at::Tensor& x_TD, const Step& s) {
  Step part = of_rows(at::arange(1, x_TD.options().dtype(at::kLong)), s);
  TrainingStep uncounted = training_of(s);
  uncounted.router = nullptr;
  set_training(part, std::move(uncounted));
  return mixture(x_TD.narrow(0, 0, 1), part).sum() * 0;
}
}  // namespace

MoeByKind::MoeByKind(MoeMlp::Spec text, MoeMlp::Spec media)
    : text_(child<MoeMlp>("", without_shared(text))), media_(child<MoeMlp>("", media)) {
  if (text.names.correction) media_.use_correction_of(text_, 1);
  if (text.shared_ffn > 0)
    shared_ = &child<Mlp>(text.names.shared, text.hidden, text.shared_ffn,
                          Mlp::Spec{.act = text.act, .kind = text.names.shared_kind, .names = text.names.of_shared});
}

at::Tensor MoeByKind::routed(const at::Tensor& x_TD, const Step& s) const {
  // Ranks that share out experts, or sum gradients, wait for each other: each mixture has a part in every pass of
  // training. An engine's ranks all have the same tokens.
  const bool always = !s.cache && (mesh() || at::GradMode::is_enabled());
  if (!s.kinds) {
    const at::Tensor y_TD = text_(x_TD, s);
    return always ? y_TD + nothing(media_, x_TD, s) : y_TD;
  }
  const auto through = [&](const MoeMlp& mixture, const at::Tensor& rows, const at::Tensor& sum_TD) {
    if (rows.size(0) == 0) return always ? sum_TD + nothing(mixture, x_TD, s) : sum_TD;
    return at::index_copy(sum_TD, 0, rows, mixture(at::index_select(x_TD, 0, rows), of_rows(rows, s)));
  };
  const at::Tensor of_text_TD = through(text_, own_rows(s.kinds->text_N, s), at::zeros_like(x_TD));
  return through(media_, own_rows(s.kinds->media_M, s), of_text_TD);
}

at::Tensor MoeByKind::operator()(const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor y_TD = routed(x_TD, s);
  return shared_ ? y_TD + (*shared_)(x_TD, s) : y_TD;
}

}  // namespace apus
