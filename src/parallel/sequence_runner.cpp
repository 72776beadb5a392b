// SPDX-License-Identifier: Apache-2.0
#include "parallel/sequence_runner.h"

#include <utility>

#include "base/error.h"
#include "device/comm.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

namespace {
// Of few tokens some ranks would have none.
std::shared_ptr<const TokenShare> shared(Comm* ranks, const std::vector<int32_t>& lengths, int groups, at::Device on) {
  if (!ranks) return nullptr;
  auto share = std::make_shared<const TokenShare>(*ranks, lengths, groups, on);
  return share->all_have_some() ? share : nullptr;
}
}  // namespace

// A pass with a cache is the engine's, whose steps the ranks do not make together, or of single tokens.
void SequenceRunner::prepare(const Inputs& in, Step& s) {
  inner_->prepare(in, s);
  const Sharers sharers = !s.cache && alone_.expired() ? sharers_ : Sharers();
  const at::Device device = in.id_T.device();
  now_ = shared(sharers.of_rows, s.length_q, sharers.groups, device);
  const int64_t here = now_ ? now_->own().size : in.id_T.size(0);
  residual_ = shared(sharers.of_residual, {static_cast<int32_t>(here)}, 1, device);
  const TrainingStep& before = training_of(s);
  if (now_ == before.tokens && residual_ == before.residual) return;
  TrainingStep training = before;
  training.tokens = now_, training.residual = residual_;
  set_training(s, std::move(training));
}

namespace {
void keep_rows(const TokenShare& share, LateFeatures& late) {
  if (late.of_layer_RD.empty()) return;
  const TokenShare::Places kept = share.places(late.row_R);
  late.row_R = kept.own;
  for (at::Tensor& each_RD : late.of_layer_RD) each_RD = each_RD.index_select(0, kept.which.to(each_RD.device()));
}
}  // namespace

// The embedding is of all tokens, of which media may bring some. This rank's are a copy: those of the others would stay
// with them.
at::Tensor SequenceRunner::embed(const Model& model, const Inputs& in, const Step& s) {
  const at::Tensor x_TD = embed_own(model, in, s);
  if (!residual_) return x_TD;
  if (in.late) keep_rows(*residual_, *in.late);
  return residual_->narrowed(x_TD).clone();
}

// A tower looks at a whole medium: each rank embeds all tokens of rows with media, and goes on with its own.
at::Tensor SequenceRunner::embed_own(const Model& model, const Inputs& in, const Step& s) {
  if (!now_) return inner_->embed(model, in, s);
  if (in.media.empty()) return inner_->embed(model, Inputs(now_->narrowed(in.id_T)), s);
  Step of_all = s;
  TrainingStep training = training_of(s);
  training.tokens = nullptr;
  set_training(of_all, std::move(training));
  const at::Tensor x_TD = inner_->embed(model, in, of_all);
  keep_rows(*now_, *in.late);
  return now_->narrowed(x_TD);
}

at::Tensor SequenceRunner::layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) {
  return inner_->layer(model, i, x_TD, s);
}

at::Tensor SequenceRunner::final_norm(const Model& model, const at::Tensor& x_TD) {
  at::Tensor y_TD = inner_->final_norm(model, x_TD);
  if (residual_) y_TD = residual_->gathered(y_TD);
  return now_ ? now_->gathered(y_TD) : y_TD;
}

std::shared_ptr<void> SequenceRunner::alone() {
  std::shared_ptr<void> all = alone_.lock();
  if (!all) alone_ = all = std::make_shared<std::shared_ptr<void>>(inner_->alone());
  return all;
}

}  // namespace apus
