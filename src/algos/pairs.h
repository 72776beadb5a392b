// SPDX-License-Identifier: Apache-2.0
// What the algorithms that compare two answers to one prompt share: their samples, which lie in a batch as chosen,
// rejected, chosen, rejected, and the log-probabilities of whole answers.
#pragma once

#include "train/algorithm.h"

namespace apus {

// Sums over the labels of each answer, f32 [P]; and how many labels those are.
struct PairSums {
  at::Tensor chosen_P, rejected_P, chosen_tokens_P, rejected_tokens_P;
  PairSums averaged() const;  // by token
};

// Where the last answer of a sample begins: its last stretch of trained tokens.
size_t answer_begin(const Sample& sample);

// sum_t x_t of each sequence, [S].
at::Tensor sequence_sums(const at::Tensor& x_T, const Step& step);

// x is 0 where there is no label. With tail < 1 the labels of an answer behind the length of the shorter one of its
// pair count `tail` each.
PairSums pair_sums(const at::Tensor& x_T, const Batch& batch, double tail = 1);

// log p of each label, differentiable; 0 where there is none.
at::Tensor policy_logprobs(const Actors& actors, Batch& batch, const Forward& forward);

// log sigma(x) = -log(1 + exp(-x)), without overflow.
at::Tensor log_sigmoid(const at::Tensor& x);

// The logistic loss of a preference that holds with probability 1 - smoothing.
at::Tensor smoothed_logistic(const at::Tensor& x, double smoothing);

// The divisor of the loss is the number of pairs.
class PairAlgorithm : public Algorithm {
 public:
  std::vector<Sample> encode(const Row& row, const Encoder& encoder) const override;
  std::vector<Update> collect(Actors& actors, std::vector<Samples> micro_batches) override;
  double count(const Batch& batch) const override;

 protected:
  explicit PairAlgorithm(bool shares_prefix) : shares_prefix_(shares_prefix) {}
  // The negative log-likelihood of a token of the chosen answers, over all micro-batches and ranks of the update: a sum
  // that the trainer's division by the pairs makes this mean of. Its parts, one a pair: they are weighed before they
  // are summed, since libtorch makes the gradient of one number times a factor in f64, which an NPU lacks.
  static at::Tensor chosen_nll(const PairSums& sums, const Batch& batch);

 private:
  const bool shares_prefix_;  // what both answers of a pair begin with is computed once
};

// Both lists of log-probabilities, and how the rewards compare, under the names that TRL logs.
void log_rewards(Loss& out, const at::Tensor& chosen_reward_P, const at::Tensor& rejected_reward_P,
                 const PairSums& logprobs);

Ratio mean_of(const at::Tensor& values);

// The negative log-likelihood of a token of the chosen answers, to be shown.
Ratio shown_nll(const PairSums& sums);

}  // namespace apus
