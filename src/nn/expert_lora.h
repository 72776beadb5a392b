// SPDX-License-Identifier: Apache-2.0
// LoRA on the matrices of all experts of a layer at once: their low-rank products are grouped as the experts' own are.
#pragma once

#include <string>
#include <vector>

#include "nn/linear.h"
#include "ops/expert_pairs.h"

namespace apus {

using ExpertMatrices = std::vector<Linear*>;  // the same matrix of every expert

// Whether the adapters on these matrices are alike on all experts and plain LoRA of one rank and scale. Otherwise
// (DoRA, whose row lengths are the weight's; biased ones; adapters on some experts; ranks by pattern) they run singly.
bool can_be_grouped(const ExpertMatrices& experts);

class ExpertLora {
 public:
  // pairs: of the rows that operator() gets. `s` says which tokens go through which adapter.
  ExpertLora(const ops::ExpertPairs& pairs, int64_t tokens, const Step& s);

  // y [M, O], a fresh product of x [M, I] with the base's matrices, changed in place. Several matrices of an expert
  // (gate, up) may lie side by side in y's columns.
  struct Side {
    ExpertMatrices here;
    const Linear* first;  // of all experts, those of other ranks too: all have its dropout mask
  };
  at::Tensor operator()(at::Tensor y_MO, const at::Tensor& x_MI, const std::vector<Side>& sides) const;

 private:
  struct Share {
    std::string name;        // of the adapter
    at::Tensor rows;         // undefined: all of them
    ops::ExpertPairs pairs;  // of these rows
  };
  at::Tensor change(at::Tensor y_MO, const at::Tensor& x_MI, const std::vector<Side>& sides, const std::string& adapter,
                    const ops::ExpertPairs& pairs) const;
  const Step& step_;
  const ops::ExpertPairs& all_;
  std::vector<Share> shares_;  // of a routed step
};

}  // namespace apus
