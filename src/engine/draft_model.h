// SPDX-License-Identifier: Apache-2.0
// A small model that guesses. Its keys and values lie in a cache of its own, in the blocks that the sequences own in
// the engine's; what it has not read yet it reads before.
#pragma once

#include <memory>
#include <unordered_map>

#include "engine/drafter.h"

namespace apus {

class DraftModel final : public Drafter {
 public:
  // `blocks`: how many there are, and of what size. `most_tokens`: of one pass; where there is more to read, fewer
  // guesses are made, or none.
  DraftModel(const Model& small, at::TensorOptions options, const KvCache::Spec& blocks, int64_t most_tokens);
  void forget_others(const std::function<bool(int64_t id)>& known) override;
  void drop_cache() override;

 private:
  struct Seen {
    int64_t computed = 0, preemptions = 0;
    std::vector<int32_t> tokens;  // guesses behind `text` tokens that are in the cache
    int64_t text = 0;
  };
  std::vector<Ahead> start(const KvCache& cache, const std::vector<Wish>& wishes) override;
  at::Tensor pass(const Model& model, KvCache& cache, std::vector<Ahead>& ahead) override;

  const Model& small_;
  const at::TensorOptions options_;
  const KvCache::Spec cache_spec_;
  const int64_t most_tokens_;
  StepBuilder builder_;
  std::unique_ptr<KvCache> cache_;  // none before it is needed
  std::unordered_map<int64_t, Seen> seen_;
};

}  // namespace apus
