// SPDX-License-Identifier: Apache-2.0
#include "parallel/sequence_runner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/comm.h"
#include "nn/token_share.h"
#include "nn/training_step.h"

namespace apus {

// A pass with a cache is the engine's, whose steps the ranks do not make together; and of fewer tokens than ranks some
// would have none.
void SequenceRunner::prepare(const Inputs& in, Step& s) {
  inner_->prepare(in, s);
  const int64_t tokens = in.id_T.size(0);
  const bool own = s.cache || !alone_.expired() || tokens < ranks_.size();
  now_ = own ? nullptr : std::make_shared<const TokenShare>(ranks_, tokens);
  if (!now_ && !training_of(s).tokens) return;
  require(!now_ || std::all_of(in.media.begin(), in.media.end(), [](const auto& spans) { return spans.empty(); }),
          Fault::Usage, "--sequence_parallel_size shares out rows of text, and these hold images, videos or sounds");
  TrainingStep training = training_of(s);
  training.tokens = now_;
  set_training(s, std::move(training));
}

at::Tensor SequenceRunner::embed(const Model& model, const Inputs& in, const Step& s) {
  return inner_->embed(model, now_ ? Inputs(now_->narrowed(in.id_T)) : in, s);
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
