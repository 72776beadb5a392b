// SPDX-License-Identifier: Apache-2.0
// A head behind the model guesses (GuessHead). It reads along: after each pass of the model, all that the pass
// computed and whose next token is known, so that blocks of the prefix cache hold its keys and values too, in a
// cache of its own.
#pragma once

#include <memory>
#include <unordered_map>

#include "engine/drafter.h"
#include "models/guess_head.h"

namespace apus {

class DraftHead final : public Drafter {
 public:
  using HeadOf = std::function<const GuessHead&(const Model& model)>;
  // `blocks`: how many there are, and of what size.
  DraftHead(HeadOf head_of, const Model& model, at::TensorOptions options, const KvCache::Spec& blocks);
  at::Tensor run(const Model& model, const StepPlan& plan, const Inputs& in, Step& s) override;
  bool looks_on() const override { return true; }
  void forget_others(const std::function<bool(int64_t id)>& known) override;
  void drop_cache() override;

 private:
  // The states behind a sequence's tokens from `begin` on, as the model's last pass has left them; those up to `read`
  // are in the cache. States of wrong guesses are among the last ones.
  struct Seen {
    int64_t begin = 0, read = 0, preemptions = 0;
    at::Tensor state_TD;
  };
  std::vector<Ahead> start(const KvCache& cache, const std::vector<Wish>& wishes) override;
  at::Tensor pass(const Model& model, KvCache& cache, std::vector<Ahead>& ahead) override;

  const HeadOf head_of_;
  const at::TensorOptions options_;
  const KvCache::Spec cache_spec_;
  StepBuilder builder_;
  std::unique_ptr<KvCache> cache_;  // none before it is needed
  std::unordered_map<int64_t, Seen> seen_;
};

}  // namespace apus
