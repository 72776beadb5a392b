// SPDX-License-Identifier: Apache-2.0
#include "algos/pairs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include "data/encode/id_rows.h"
#include "ops/ops.h"
#include "train/label_logprobs.h"
#include "train/shared_prefix.h"

namespace apus {
namespace {

constexpr const char* kNllScale = "chosen_nll_scale";  // pairs of the update / labels of its chosen answers

// The labels behind the shorter answer of the pair, [T].
at::Tensor is_tail(const at::Tensor& labelled_T, const at::Tensor& count_S, const Step& step) {
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (size_t i = 0; i < step.length_q.size(); begin += step.length_q[i++]) {
    const at::Tensor number = labelled_T.narrow(0, begin, step.length_q[i]).cumsum(0);  // from 1, at labels
    const auto pair = static_cast<int64_t>(i / 2 * 2);
    parts.push_back(number > at::minimum(count_S[pair], count_S[pair + 1]));
  }
  return at::cat(parts);
}

double labels_of_chosen(const Batch& batch) {
  const at::Tensor labelled_T = batch.label_T.ge(0).to(at::kFloat);
  return pair_sums(labelled_T, batch).chosen_P.sum().item<double>();
}

void require_answer(const Sample& sample, const Row& row, const char* key) {
  if (sample.trained_tokens() == 0)
    throw RowError(row.origin, key, "nothing of this answer is compared: it has no token that counts");
}

}  // namespace

PairSums PairSums::averaged() const {
  return {chosen_P / chosen_tokens_P, rejected_P / rejected_tokens_P, chosen_tokens_P, rejected_tokens_P};
}

size_t answer_begin(const Sample& sample) {
  size_t at = sample.trained.size();
  while (at > 0 && !sample.trained[at - 1]) --at;
  while (at > 0 && sample.trained[at - 1]) --at;
  return at;
}

at::Tensor sequence_sums(const at::Tensor& x_T, const Step& step) {
  std::vector<at::Tensor> sums;
  int64_t begin = 0;
  for (const int32_t length : step.length_q) {
    sums.push_back(x_T.narrow(0, begin, length).sum());
    begin += length;
  }
  return at::stack(sums);
}

PairSums pair_sums(const at::Tensor& x_T, const Batch& batch, double tail) {
  const at::Tensor labelled_T = batch.label_T.ge(0).to(x_T.scalar_type());
  const at::Tensor count_S = sequence_sums(labelled_T, batch.step);
  const at::Tensor counted_T = tail == 1 ? x_T : at::where(is_tail(labelled_T, count_S, batch.step), x_T * tail, x_T);
  const at::Tensor sum_P2 = sequence_sums(counted_T, batch.step).view({-1, 2}), count_P2 = count_S.view({-1, 2});
  return {sum_P2.select(1, 0), sum_P2.select(1, 1), count_P2.select(1, 0), count_P2.select(1, 1)};
}

at::Tensor policy_logprobs(const Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  return label_logprobs(actors.policy, actors.policy.head_factors(hidden_TD, batch.step), batch.label_T, batch.step);
}

at::Tensor log_sigmoid(const at::Tensor& x) { return -at::softplus(-x); }

at::Tensor smoothed_logistic(const at::Tensor& x, double smoothing) {
  return log_sigmoid(x) * -(1 - smoothing) - log_sigmoid(-x) * smoothing;
}

std::vector<Sample> PairAlgorithm::encode(const Row& row, const Encoder& encoder) const {
  Samples pair;
  if (has_ids(row, "chosen_")) {
    pair = {sample_of_ids(row, "chosen_", encoder.options()), sample_of_ids(row, "rejected_", encoder.options())};
  } else {
    if (!row.value.contains("rejected_messages"))
      throw RowError(row.origin, "rejected_response",
                     "the row has no rejected answer; a pair is a conversation and rejected_response (the other "
                     "answer) or rejected_messages (the other conversation)");
    pair = encoder.encode(row);
    Row other = row;
    other.value["messages"] = row.value["rejected_messages"];
    for (const char* media : {"images", "videos", "audios"})
      if (const std::string own = str("rejected_", media); row.value.contains(own)) other.value[media] = row.value[own];
    const Samples rejected = encoder.encode(other);
    pair.insert(pair.end(), rejected.begin(), rejected.end());
  }
  require(pair.size() == 2, Fault::Bug, "a pair became ", pair.size(), " samples");
  require_answer(pair[0], row, "messages"), require_answer(pair[1], row, "rejected_messages");
  if (pair[0].ids == pair[1].ids)
    throw RowError(row.origin, "rejected_messages", "the rejected answer is the same as the chosen one");
  pair[1].grouped = true;
  return pair;
}

std::vector<Update> PairAlgorithm::collect(Actors& actors, std::vector<Samples> micro_batches) {
  Update update;
  double pairs = 0, labels = 0;
  for (const Samples& samples : micro_batches) {
    update.push_back(collate(samples));
    if (shares_prefix_) update.back().shared = shared_prefixes(update.back());
    pairs += count(update.back()), labels += labels_of_chosen(update.back());
  }
  if (at::GradMode::is_enabled()) pairs = actors.summed(pairs), labels = actors.summed(labels);
  for (Batch& batch : update)
    batch.sequence_columns[kNllScale] =
        at::full({static_cast<int64_t>(batch.step.length_q.size())}, labels > 0 ? pairs / labels : 0, at::kFloat);
  return {std::move(update)};
}

double PairAlgorithm::count(const Batch& batch) const { return static_cast<double>(batch.step.length_q.size()) / 2; }

at::Tensor PairAlgorithm::chosen_nll(const PairSums& sums, const Batch& batch) {
  const auto scale = batch.sequence_columns.find(kNllScale);  // a batch that is not collected is only run through
  return scale == batch.sequence_columns.end() ? sums.chosen_P * 0 : sums.chosen_P * -scale->second[0];
}

Ratio mean_of(const at::Tensor& values) {
  return {values.detach().sum(), at::tensor(static_cast<double>(values.numel()), at::kDouble)};
}

Ratio shown_nll(const PairSums& sums) { return {-sums.chosen_P.detach().sum(), sums.chosen_tokens_P.sum()}; }

void log_rewards(Loss& out, const at::Tensor& chosen_reward_P, const at::Tensor& rejected_reward_P,
                 const PairSums& logprobs) {
  out.metrics["rewards/chosen"] = mean_of(chosen_reward_P);
  out.metrics["rewards/rejected"] = mean_of(rejected_reward_P);
  out.metrics["rewards/accuracies"] = mean_of(chosen_reward_P.gt(rejected_reward_P).to(at::kFloat));
  out.metrics["rewards/margins"] = mean_of(chosen_reward_P - rejected_reward_P);
  out.metrics["logps/chosen"] = mean_of(logprobs.chosen_P);
  out.metrics["logps/rejected"] = mean_of(logprobs.rejected_P);
}

}  // namespace apus
