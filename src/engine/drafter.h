// SPDX-License-Identifier: Apache-2.0
// Guesses at the next tokens of answers that something computes, one pass for each place in them: a small model, a head
// of the model's own, the model without some layers.
#pragma once

#include <functional>
#include <vector>

#include "engine/sampler.h"
#include "engine/step_builder.h"
#include "models/model.h"

namespace apus {

class Drafter {
 public:
  virtual ~Drafter() = default;
  struct Wish {
    const Sequence* sequence;
    const Sampling* sampling;
    int64_t count;  // its blocks have room for so many; 0: none are wanted
  };
  // Of each wish up to that many tokens, drawn as the engine draws: with the same random numbers, so that a guess is
  // right wherever the two agree. `cache`: the model's.
  virtual std::vector<std::vector<int32_t>> operator()(const Model& model, KvCache& cache,
                                                       const std::vector<Wish>& wishes);
  // A pass of the model itself: its last hidden states, and whatever else is to be kept of it.
  virtual at::Tensor run(const Model& model, const StepPlan& plan, const Inputs& in, Step& s);
  // Whether run() is wanted in every step, so that none may be recorded.
  virtual bool looks_on() const { return false; }
  virtual void forget_others(const std::function<bool(int64_t id)>& /*known*/) {}
  virtual void drop_cache() {}

 protected:
  // A sequence with the guesses behind it, as far as they have come.
  struct Ahead {
    size_t wish;
    Sequence sequence;
    Sampling sampling;
    int64_t begin, left;       // the first token that is to be read; guesses still wanted
    at::Tensor state_TD = {};  // of a head: from which it goes on, for each token that is to be read
  };
  // Without guesses yet, whoever may be guessed for or has something to be read.
  virtual std::vector<Ahead> start(const KvCache& cache, const std::vector<Wish>& wishes) = 0;
  // Reads what each has from `begin` on, which goes behind it -> logits of what comes then, a row for each with guesses
  // left, at least one.
  virtual at::Tensor pass(const Model& model, KvCache& cache, std::vector<Ahead>& ahead) = 0;
  static Ahead ahead_of(size_t wish, const Wish& of, int64_t begin);
  // The rows of those with guesses left among `rows`, one of each.
  static std::vector<int64_t> wanted(const std::vector<Ahead>& ahead, const std::vector<int64_t>& rows);

 private:
  void draw(std::vector<Ahead>& ahead, const at::Tensor& logits_RV);
  Sampler sampler_;
};

}  // namespace apus
