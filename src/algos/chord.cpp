// SPDX-License-Identifier: Apache-2.0
#include "algos/chord.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "base/error.h"
#include "ops/ops.h"

namespace apus {
namespace {

// A number of a batch.
constexpr const char* kShown = "shown";      // of what is shown: by what its tokens' losses are multiplied
constexpr const char* kRewards = "rewards";  // of what is rewarded: its share of the loss

}  // namespace

at::Tensor shown_token_losses(const at::Tensor& logprob_N, bool by_doubt) {
  if (!by_doubt) return -logprob_N;
  const at::Tensor p_N = logprob_N.detach().exp();
  return -logprob_N * (p_N * (1 - p_N));
}

Chord::Chord(ChordOptions options, SampleSource& rows, c10::Device device)
    : o_(std::move(options)), rows_(rows), device_(device) {
  rows_.start(0);
}

Samples Chord::next() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (auto rows = rows_.next()) return *rows;
    rows_.start(++epoch_);
  }
  fail(Fault::Data, "--chord_sft_dataset gives no row");
}

// The trainer divides everything by the divisor of the rewarded answers; what is shown is divided by its own tokens.
void Chord::add_to(Update& update, Actors& actors, int64_t step, double count) {
  const double mu = o_.chord_mu(step);
  std::vector<Batch> shown;
  double tokens = 0;
  for (Batch& batch : update) {
    batch.own[kRewards] = at::tensor(1 - mu, at::kDouble);
    shown.push_back(collate(next()).to(device_));
    tokens += static_cast<double>(shown.back().trained);
  }
  const double all = actors.summed(tokens), factor = all > 0 ? mu * count / all : 0;
  for (Batch& batch : shown) {
    batch.own[kShown] = at::tensor(factor, at::kDouble);
    update.push_back(std::move(batch));
  }
}

bool Chord::shows(const Batch& batch) { return batch.own.count(kShown) > 0; }

double Chord::share_of_rewards(const Batch& batch) {
  const auto found = batch.own.find(kRewards);
  return found == batch.own.end() ? 1 : found->second.item<double>();
}

Loss Chord::loss(Actors& actors, Batch& batch, const Forward& forward) const {
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const at::Tensor logprob_T =
      ops::head_logprob(actors.policy.head_factors(hidden_TD, batch.step), batch.label_T, 1, false).logprob_T;
  Loss out{.sum = (logprob_T * 0).sum(), .metrics = {}};
  if (batch.trained == 0) return out;
  const at::Tensor loss_N =
      shown_token_losses(logprob_T.index_select(0, ops::labelled_rows(batch.label_T)), o_.chord_enable_phi_function);
  out.sum = (loss_N * batch.own.at(kShown).item<double>()).sum();
  out.metrics["chord_sft_loss"] = {loss_N.detach().sum(), at::tensor(static_cast<double>(batch.trained), at::kFloat)};
  return out;
}

Json Chord::state() const { return {{"position", rows_.position()}, {"epoch", epoch_}}; }

void Chord::restore(const Json& state) {
  epoch_ = state.at("epoch").get<int64_t>();
  rows_.start(epoch_);
  rows_.restore(state.at("position"));
}

}  // namespace apus
