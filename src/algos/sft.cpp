// SPDX-License-Identifier: Apache-2.0
#include "algos/sft.h"

#include <ATen/ops/scalar_tensor.h>

#include "algos/tokens_ahead.h"
#include "nn/token_share.h"
#include "nn/training_step.h"
#include "ops/divergence.h"
#include "train/label_logprobs.h"

namespace apus {
namespace {

constexpr int64_t kEaftTokens = 20;
constexpr double kEaftEntropy = 3;  // log 20, roughly: the weight is about the share of the largest entropy

void add_channels(Loss& out, const Batch& batch, const at::Tensor& nll_T, const at::Tensor& trained_T) {
  int64_t begin = 0;
  for (size_t i = 0; i < batch.channels.size(); begin += batch.step.length_q[i++]) {
    const int64_t length = batch.step.length_q[i];
    if (batch.channels[i].empty()) continue;
    Ratio& channel = out.metrics["loss_" + batch.channels[i]];
    const at::Tensor sum = nll_T.narrow(0, begin, length).sum(), count = trained_T.narrow(0, begin, length).sum();
    channel = channel.sum.defined() ? Ratio{channel.sum.add(sum), channel.count.add(count)} : Ratio{sum, count};
  }
}

// Sequences without a single wrong token, among those with anything to learn.
Ratio whole_sequences(const Batch& batch, const at::Tensor& correct_T, const at::Tensor& trained_T) {
  const at::Tensor wrong_T = trained_T.logical_and(correct_T.logical_not());
  at::Tensor right = at::scalar_tensor(0.0, wrong_T.options().dtype(at::kFloat)), count = right.clone();
  int64_t begin = 0;
  for (const int32_t length : batch.step.length_q) {
    const at::Tensor learns = trained_T.narrow(0, begin, length).any();
    right = right.add(learns.logical_and(wrong_T.narrow(0, begin, length).any().logical_not()));
    count = count.add(learns);
    begin += length;
  }
  return {right, count};
}

}  // namespace

Loss Sft::loss(Actors& actors, Batch& batch, const Forward& forward) {
  at::Tensor embedded_TD;
  Forward seen = forward;
  if (o_.mtp_num_layers > 0)
    seen.watch = [&](const std::string& part, const at::Tensor& output) {
      if (part == Forward::kEmbedding) embedded_TD = output;
      if (forward.watch) forward.watch(part, output);
    };
  const at::Tensor hidden_TD = seen.hidden(actors.policy, batch);
  const ops::HeadFactors factors = actors.policy.head_factors(hidden_TD, batch.step);
  // Of ranks that share the tokens each takes the loss of its own, as many times as there are ranks: together they are
  // so many copies of the batch. Whole sequences can be judged by all labels only.
  const auto& share = training_of(batch.step).tokens;
  const bool own = share && o_.acc_strategy != "seq";
  const at::Tensor label_T = own ? share->own_labels(batch.label_T) : batch.label_T;
  at::Tensor weight_T = batch.weight_T;
  if (o_.enable_eaft_loss)
    weight_T = weight_T * (ops::head_top_entropy(factors, label_T, kEaftTokens) / kEaftEntropy).pow(o_.eaft_alpha);
  const ops::HeadLoss head =
      label_loss(actors.policy, factors, label_T, weight_T,
                 {.label_smoothing = o_.label_smoothing_factor, .dft = o_.enable_dft_loss || o_.enable_asft_loss});
  const at::Tensor trained_T = label_T.ge(0);
  Loss out{.sum = head.loss_sum, .metrics = {}};
  if (o_.uses_reference()) {
    const ops::HeadDivergence kl = ops::head_divergence(factors, label_T, actors.reference.value().head_factors(batch),
                                                        label_T, {.beta = 0, .factor = o_.asft_alpha});
    out.sum = out.sum + kl.sum;
    out.metrics["kl"] = {kl.value_n.sum(), trained_T.sum()};
  }
  if (o_.mtp_num_layers > 0) {  // over as many tokens as the loss itself
    const AheadLoss ahead = loss_ahead(actors.policy, batch, embedded_TD, hidden_TD);
    out.sum = out.sum + ahead.sum * o_.mtp_loss_scaling_factor;
    out.metrics["mtp_loss"] = {ahead.nll_sum, ahead.count}, out.metrics["mtp_acc"] = {ahead.correct, ahead.count};
  }
  if (own) out.sum = out.sum * share->ranks().size();
  if (o_.acc_strategy == "seq")
    out.metrics["seq_acc"] = whole_sequences(batch, head.correct_T, trained_T);
  else
    out.metrics["token_acc"] = {head.correct_T.logical_and(trained_T).sum(), trained_T.sum()};
  if (o_.enable_channel_loss) add_channels(out, batch, head.nll_T, trained_T);
  return out;
}

namespace {
const RegisterAlgorithm<Sft> sft("sft"), pt("pt");
}  // namespace

}  // namespace apus
