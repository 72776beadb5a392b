// SPDX-License-Identifier: Apache-2.0
#include "algos/policy/policy_loss.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include "base/error.h"

namespace apus {

at::Tensor PolicyTokens::sums(const at::Tensor& x_N) const {
  return at::index_add(at::zeros({sequences}, x_N.options()), 0, sequence_N, x_N);
}

at::Tensor PolicyTokens::lengths() const { return sums(at::ones_like(old_N)); }

at::Tensor PolicyTokens::means(const at::Tensor& x_N) const { return sums(x_N) / lengths().clamp_min(1); }

at::Tensor PolicyTokens::spread(const at::Tensor& x_S) const { return x_S.index_select(0, sequence_N); }

RatioLevel ratio_level_named(const std::string& name) {
  if (name == "token") return RatioLevel::Token;
  if (name == "sequence") return RatioLevel::Sequence;
  require(name == "sequence_token", Fault::Bug, "no importance_sampling_level is named '", name, "'");
  return RatioLevel::SequenceToken;
}

at::Tensor policy_log_ratio(const PolicyTokens& t, RatioLevel level) {
  const at::Tensor token_N = t.log_ratio();
  if (level == RatioLevel::Token) return token_N;
  if (level == RatioLevel::Sequence) return t.spread(t.means(token_N));
  return t.logprob_N - t.logprob_N.detach() + t.spread(t.means(token_N)).detach();
}

at::Tensor token_factors(const PolicyTokens& t, Normaliser normaliser) {
  const at::Tensor one_N = at::ones_like(t.old_N);
  if (normaliser == Normaliser::Sequence) {
    const at::Tensor length_N = t.spread(t.lengths());
    return t.share_S.defined() ? t.spread(t.share_S.to(length_N.scalar_type())) / length_N : one_N / length_N;
  }
  if (normaliser == Normaliser::MicroBatch) return one_N / static_cast<double>(t.old_N.numel());
  return one_N;
}

const PolicyLossInfo& policy_loss_named(const std::string& name) {
  const PolicyLossInfo* info = Registry<PolicyLossInfo>::of().find(name);
  require(info, Fault::Bug, "no policy loss is named '", name, "'");
  return *info;
}

Clipped clipped_tokens(const PolicyTokens& t, const PolicyOptions& o) {
  const at::Tensor ratio_N = policy_log_ratio(t, o.level).detach().exp();
  return {.low_N = ratio_N.lt(1 - o.epsilon).logical_and(t.advantage_N.lt(0)),
          .high_N = ratio_N.gt(1 + o.epsilon_high).logical_and(t.advantage_N.gt(0))};
}

}  // namespace apus
