// SPDX-License-Identifier: Apache-2.0
// The model without some of its layers guesses, from the keys and values that it has computed with all of them: those
// of guesses are written over when they are checked. It needs no memory of its own.
#pragma once

#include "engine/drafter.h"

namespace apus {

class DraftSelf final : public Drafter {
 public:
  DraftSelf(const Model& model, std::vector<int64_t> skipped, at::Device device, int64_t block_size);
  std::vector<std::vector<int32_t>> operator()(const Model& model, KvCache& cache,
                                               const std::vector<Wish>& wishes) override;

 private:
  std::vector<Ahead> start(const KvCache& cache, const std::vector<Wish>& wishes) override;
  at::Tensor pass(const Model& model, KvCache& cache, std::vector<Ahead>& ahead) override;

  const std::vector<int64_t> skipped_;
  StepBuilder builder_;
};

}  // namespace apus
