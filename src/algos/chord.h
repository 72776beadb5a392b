// SPDX-License-Identifier: Apache-2.0
// Answers of a dataset, shown beside those that are rewarded (CHORD): an update learns (1 - mu) from rewards and mu
// from what is shown.
#pragma once

#include "algos/options/chord_options.h"
#include "train/algorithm.h"

namespace apus {

// Of shown tokens, from their log-probabilities: cross-entropy, `by_doubt` weighed by p (1 - p), without gradient
// through the weight. Pure.
at::Tensor shown_token_losses(const at::Tensor& logprob_N, bool by_doubt);

class Chord {
 public:
  Chord(ChordOptions options, SampleSource& rows, c10::Device device);

  // As many micro-batches of shown answers as the update has of rewarded ones, whose divisor (over all ranks) is
  // `count`. All ranks call it together.
  void add_to(Update& update, Actors& actors, int64_t step, double count);
  static bool shows(const Batch& batch);  // is it one of them?
  // By what the loss of rewarded answers is multiplied: 1 - mu, or 1 where nothing is shown.
  static double share_of_rewards(const Batch& batch);
  Loss loss(Actors& actors, Batch& batch, const Forward& forward) const;

  Json state() const;
  void restore(const Json& state);

 private:
  Samples next();
  const ChordOptions o_;
  SampleSource& rows_;
  const c10::Device device_;
  int64_t epoch_ = 0;
};

}  // namespace apus
