// SPDX-License-Identifier: Apache-2.0
// Losses of the policy gradient, one file each, as pure functions of the trained tokens. They give a value for each
// token; what those are divided by is said beside them and applied by the caller, so that it is known before any
// backward pass and does not follow from how the samples were divided.
//
// N trained tokens, sequence after sequence, observations left out; S sequences.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "base/registry.h"

namespace apus {

struct PolicyTokens {
  at::Tensor logprob_N;    // differentiable
  at::Tensor old_N;        // of the policy that sampled, or as it was before these updates
  at::Tensor advantage_N;  // detached, as the former
  at::Tensor sequence_N;   // int64: which sequence, ascending
  int64_t sequences = 0;
  at::Tensor share_S;  // of an answer in several sequences: the part of its tokens that each has; undefined: all are 1
  at::Tensor group_S;  // int64: which group; of losses that compare the answers to one prompt
  int64_t groups = 0;
  at::Tensor picked_N;  // bool: of losses that treat the highest tokens of the whole update apart

  at::Tensor log_ratio() const { return logprob_N - old_N; }
  // Sums and means over each sequence's tokens, [S]; 0 for one without any.
  at::Tensor sums(const at::Tensor& x_N) const;
  at::Tensor lengths() const;  // in x's type: as a factor
  at::Tensor means(const at::Tensor& x_N) const;
  at::Tensor spread(const at::Tensor& x_S) const;  // to the tokens of each sequence, [N]
};

// The share of new to old probability that a token's loss is weighed by.
enum class RatioLevel {
  Token,
  Sequence,       // one for all tokens: the exponential of their mean log-ratio (GSPO)
  SequenceToken,  // its value, with each token's own gradient
};
RatioLevel ratio_level_named(const std::string& name);
at::Tensor policy_log_ratio(const PolicyTokens& t, RatioLevel level);  // [N]

struct PolicyOptions {
  RatioLevel level = RatioLevel::Token;
  double epsilon = 0.2, epsilon_high = 0.2;
  std::optional<double> delta;         // no ratio counts for more (dual clip)
  double tau_pos = 1, tau_neg = 1.05;  // sapo
  double real_tau = 0.5;               // real
  double fipo_decay_rate = 32, fipo_clip_range = 0.2, fipo_safety_threshold = 4;
  bool fipo_clip_high_only = true;
  double vespo_k_pos = 2, vespo_k_neg = 3, vespo_lambda_pos = 3, vespo_lambda_neg = 2;
  double dro_beta = 0.1;
  double cov_ratio = 2e-4, clip_cov_low = 1, clip_cov_high = 5, kl_cov_coef = 1;
};

// What the sum of the tokens' losses is divided by. All counts are over the whole update and
// all ranks, but that of MicroBatch.
enum class Normaliser {
  Sequence,      // mean over answers of the means over their tokens
  Tokens,        // mean over tokens
  MicroBatch,    // mean over the tokens of each micro-batch, then over micro-batches: depends on the division
  Constant,      // answers times the longest one that is allowed
  SequenceSums,  // mean over answers of the sums over their tokens
  Groups,        // mean over groups that have answers to compare
};
// Factors on the tokens' losses, [N], before they are summed.
at::Tensor token_factors(const PolicyTokens& t, Normaliser normaliser);

// Means over all tokens of the update.
struct UpdateMeans {
  double advantage = 0, logprob = 0;
};

struct PolicyLossInfo {
  at::Tensor (*token_loss)(const PolicyTokens& t, const PolicyOptions& o);  // [N]
  Normaliser normaliser = Normaliser::Tokens;
  // By what the tokens are chosen (the highest cov_ratio of them) that token_loss finds in picked_N; [N], f64, not
  // finite for those that may not be. Null: it asks for none.
  at::Tensor (*pick_by)(const PolicyTokens& t, const PolicyOptions& o, const UpdateMeans& means) = nullptr;
};
struct RegisterPolicyLoss {
  RegisterPolicyLoss(const char* name, PolicyLossInfo info) { Registry<PolicyLossInfo>::of().add(name, info); }
};
const PolicyLossInfo& policy_loss_named(const std::string& name);

// Where the clipped surrogate has no gradient: the ratio left the range in the direction that its advantage rewards.
struct Clipped {
  at::Tensor low_N, high_N;  // bool
};
Clipped clipped_tokens(const PolicyTokens& t, const PolicyOptions& o);

}  // namespace apus
