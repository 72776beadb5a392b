// SPDX-License-Identifier: Apache-2.0
// Experts around attention (JetMoe): each token's experts make its queries, and bring what those see back to the
// model's width. Keys and values are the layer's own.
#pragma once

#include "nn/linear.h"
#include "nn/module.h"
#include "nn/step.h"
#include "ops/expert_pairs.h"
#include "ops/ops.h"

namespace apus {

class QueryExperts : public Module {
 public:
  // `made`: the numbers of one expert's queries, of all key-value heads side by side.
  struct Spec {
    int64_t hidden, experts, per_token, kv_heads, head_dim;
  };
  explicit QueryExperts(Spec spec);
  struct Chosen {
    ops::Routing routing;
    ops::ExpertPairs pairs;
  };
  Chosen chosen(const at::Tensor& x_TD, const Step& s) const;
  // Heads of one key-value head side by side: [T, heads * head_dim].
  at::Tensor queries(const at::Tensor& x_TD, const Chosen& chosen) const;
  // What the queries saw, in the same order -> [T, D].
  at::Tensor joined(const at::Tensor& y_TA, const Chosen& chosen) const;

 private:
  const Spec spec_;
  Linear& router_;
  Param &in_, &out_, &bias_;
};

}  // namespace apus
