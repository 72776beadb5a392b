// SPDX-License-Identifier: Apache-2.0
// Where the engine that sampled and the trainer disagree on a token's probability: weights that correct for it, and
// numbers that show it. w = p(trainer, before the updates) / p(engine).
#pragma once

#include <map>
#include <string>

#include "algos/policy/policy_loss.h"

namespace apus {

enum class Correction { None, TokenTruncate, TokenMask, SequenceTruncate, SequenceMask };
Correction correction_named(const std::string& name);  // empty: none

struct CorrectionBounds {
  double high = 2;
  double low = 0;        // of the masks: below it a weight is 0 too (IcePop)
  bool product = false;  // of a sequence: the product of its tokens' weights instead of their geometric mean
};

// Factors on the tokens' losses, [N], detached. `engine_N` are the engine's log-probs of t's tokens, whose trainer's
// are t.old_N.
at::Tensor correction_weights(const PolicyTokens& t, const at::Tensor& engine_N, Correction correction,
                              const CorrectionBounds& bounds);

// Sequences with a bad answer from which the policy has moved far away already teach nothing more: bool [N], false
// where mean(old - new) exceeds `delta` and the advantage is below 0.
at::Tensor on_policy_enough(const PolicyTokens& t, double delta);

// Ends the run where `worst`, the largest difference of a token's log-probs, is not 0 (--deterministic_rollout true).
void require_agreement(double worst);

// One value each, over the tokens or sequences at hand.
std::map<std::string, at::Tensor> mismatch_metrics(const PolicyTokens& t, const at::Tensor& engine_N);

}  // namespace apus
