// SPDX-License-Identifier: Apache-2.0
// A small model that guesses at the next tokens of answers, one pass for each place in them. Its keys and values lie in
// a cache of its own, in the blocks that the sequences own in the engine's; what it has not read yet it reads before.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/sampler.h"
#include "engine/step_builder.h"
#include "models/model.h"

namespace apus {

class DraftModel {
 public:
  // `blocks`: how many there are, and of what size. `most_tokens`: of one pass.
  DraftModel(const Model& model, at::TensorOptions options, const KvCache::Spec& blocks, int64_t most_tokens);

  struct Wish {
    const Sequence* sequence;
    const Sampling* sampling;
    int64_t count;  // its blocks have room for so many; 0: none are wanted
  };
  // Of each wish up to that many tokens, drawn as the engine draws: with the same random numbers, so that a guess is
  // right wherever the two models agree. Fewer, or none, where there is more to read than one pass takes.
  std::vector<std::vector<int32_t>> operator()(const std::vector<Wish>& wishes);
  void forget_others(const std::function<bool(int64_t id)>& known);
  void drop_cache();

 private:
  struct Seen {
    int64_t computed = 0, preemptions = 0;
    std::vector<int32_t> tokens;  // guessed behind `text` tokens
    int64_t text = 0;
  };
  struct Ahead;
  std::vector<Ahead> start(const std::vector<Wish>& wishes);
  void draw(std::vector<Ahead>& ahead, const at::Tensor& hidden_TD, const std::vector<int64_t>& rows);

  const Model& model_;
  const at::TensorOptions options_;
  const KvCache::Spec cache_spec_;
  const int64_t most_tokens_;
  StepBuilder builder_;
  Sampler sampler_;
  std::unique_ptr<KvCache> cache_;  // none before it is needed
  std::unordered_map<int64_t, Seen> seen_;
};

}  // namespace apus
