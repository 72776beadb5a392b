// SPDX-License-Identifier: Apache-2.0
#include "parallel/sequence_runner.h"

#include <utility>

#include "base/error.h"
#include "device/comm.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

// A pass with a cache is the engine's, whose steps the ranks do not make together; and of few tokens some ranks would
// have none.
void SequenceRunner::prepare(const Inputs& in, Step& s) {
  inner_->prepare(in, s);
  now_ = nullptr;
  if (!s.cache && alone_.expired())
    now_ = std::make_shared<const TokenShare>(ranks_, s.length_q, groups_, in.id_T.device());
  if (now_ && !now_->all_have_some()) now_ = nullptr;
  if (!now_ && !training_of(s).tokens) return;
  TrainingStep training = training_of(s);
  training.tokens = now_;
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

// A tower looks at a whole medium: each rank embeds all tokens of rows with media, and goes on with its own.
at::Tensor SequenceRunner::embed(const Model& model, const Inputs& in, const Step& s) {
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
  const at::Tensor y_TD = inner_->final_norm(model, x_TD);
  return now_ ? now_->gathered(y_TD) : y_TD;
}

std::shared_ptr<void> SequenceRunner::alone() {
  std::shared_ptr<void> all = alone_.lock();
  if (!all) alone_ = all = std::make_shared<std::shared_ptr<void>>(inner_->alone());
  return all;
}

}  // namespace apus
