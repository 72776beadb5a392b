// SPDX-License-Identifier: Apache-2.0
#include "algos/policy/mismatch.h"

#include <cmath>

#include "base/error.h"
#include "engine/answer/answer_all.h"

namespace apus {

Correction correction_named(const std::string& name) {
  if (name.empty()) return Correction::None;
  if (name == "token_truncate") return Correction::TokenTruncate;
  if (name == "token_mask") return Correction::TokenMask;
  if (name == "sequence_truncate") return Correction::SequenceTruncate;
  require(name == "sequence_mask", Fault::Bug, "no correction is named '", name, "'");
  return Correction::SequenceMask;
}

at::Tensor correction_weights(const PolicyTokens& t, const at::Tensor& engine_N, Correction correction,
                              const CorrectionBounds& bounds) {
  const at::Tensor log_N = (t.old_N - engine_N).clamp(-20, 20), token_N = log_N.exp();
  if (correction == Correction::TokenTruncate) return token_N.clamp_max(bounds.high);
  const auto kept = [&](const at::Tensor& w_N) { return w_N.le(bounds.high).logical_and(w_N.ge(bounds.low)); };
  if (correction == Correction::TokenMask) return token_N * kept(token_N);
  const at::Tensor whole_N = t.spread(bounds.product ? t.sums(log_N) : t.means(log_N)).clamp(-20, 20).exp();
  if (correction == Correction::SequenceTruncate) return whole_N.clamp_max(bounds.high);
  require(correction == Correction::SequenceMask, Fault::Bug, "no correction was asked for");
  return (bounds.product ? whole_N : token_N) * kept(whole_N);
}

at::Tensor on_policy_enough(const PolicyTokens& t, double delta) {
  const at::Tensor away_N = t.spread(t.means(-t.log_ratio().detach()));
  return away_N.gt(delta).logical_and(t.advantage_N.lt(0)).logical_not();
}

void require_agreement(double worst) {
  require(std::isfinite(worst), Fault::Model,
          "the log-probabilities of an answer are not numbers (inf or nan): ", kDiverged);
  require(worst == 0, Fault::Usage, "--deterministic_rollout true: engine and trainer differ by up to ", worst,
          " in the log-probability of a token. On a processor they are the same but for attention to chosen tokens, a "
          "bias or an adapter on the head, and answers of other processes (docs/grpo.md); there leave the option out, "
          "and correct with "
          "--rollout_importance_sampling_mode token_truncate");
}

std::map<std::string, at::Tensor> mismatch_metrics(const PolicyTokens& t, const at::Tensor& engine_N) {
  const at::Tensor log_N = t.old_N - engine_N, w_N = log_N.exp();
  const at::Tensor train_S = (-t.means(t.old_N)).exp(), engine_S = (-t.means(engine_N)).exp();
  return {{"abs_mean", log_N.abs().mean()},
          {"abs_max", log_N.abs().max()},
          {"kl", -log_N.mean()},
          {"k3_kl", (w_N - 1 - log_N).mean()},
          {"chi2_token", w_N.square().mean() - 1},
          {"chi2_seq", t.sums(log_N).exp().square().mean() - 1},
          {"training_ppl", train_S.mean()},
          {"rollout_ppl", engine_S.mean()},
          {"ess", w_N.sum().square() / (w_N.square().sum() * static_cast<double>(w_N.numel()))}};
}

}  // namespace apus
