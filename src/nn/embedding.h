// SPDX-License-Identifier: Apache-2.0
// Token ids to vectors.
#pragma once

#include <algorithm>
#include <string>

#include "nn/linear.h"
#include "ops/ops.h"

namespace apus {

class Embedding : public Adaptable {
 public:
  Embedding(int64_t count, int64_t size) : weight_(param("weight", {count, size}, {{Axis::Tp, 0}})) {}

  at::Tensor operator()(const at::Tensor& id_T, const Step& s) const {
    // Words that an adapter brings lie behind the table.
    const at::Tensor known_T = brings_words() ? id_T.clamp_max(weight_.full[0] - 1) : id_T;
    return with_adapters(id_T, ops::embedding(known_T, weight_.data), weight_.data, s);
  }
  int64_t prompt_words(const std::string& adapter) const {
    const auto found = adapters_.find(adapter);
    return found == adapters_.end() ? 0 : found->second->prompt_words();
  }
  Sides sides() const override { return {weight_.full[0], weight_.full[1], /*looks_up=*/true}; }
  Param& weight() override { return weight_; }

 private:
  bool brings_words() const {
    return std::any_of(adapters_.begin(), adapters_.end(),
                       [](const auto& adapter) { return adapter.second->prompt_words() > 0; });
  }
  Param& weight_;
};

}  // namespace apus
