// SPDX-License-Identifier: Apache-2.0
// The tokens of a forward pass, shared out among ranks that read the same rows (Ulysses' sequence parallelism). Each
// runs its own tokens through everything that looks at one token at a time. Attention looks at whole sequences, but at
// one head at a time: before it the ranks exchange tokens of all heads for all tokens of some heads, after it back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "device/comm.h"
#include "dist/launch/mesh_layout.h"

namespace apus {

// Shapes: T all tokens, t this rank's; N, K query and key-value heads, n, k those that this rank attends with.
class TokenShare {
 public:
  TokenShare(Comm& ranks, int64_t tokens);

  Comm& ranks() const { return ranks_; }
  Range own() const { return tokens_[static_cast<size_t>(ranks_.rank())]; }

  struct Heads {
    at::Tensor q, k, v;
  };
  // [t, N, H], [t, K, H] -> [T, n, H], [T, k, H]. A rank's query heads are next to each other, with the key-value heads
  // that they look at; where ranks outnumber those, several have the same.
  Heads all_tokens(const Heads& own) const;
  // What attention gave, [T, n, H] -> [t, N, H].
  at::Tensor own_tokens(const at::Tensor& y_TnH, int64_t heads, int64_t kv_heads) const;

  at::Tensor gathered(const at::Tensor& x_tD) const;       // -> [T, D]
  at::Tensor narrowed(const at::Tensor& x_T) const;        // [T, ...] -> [t, ...]: a view
  at::Tensor own_labels(const at::Tensor& label_T) const;  // the same, with -100 at the tokens of others
  at::Tensor summed(const at::Tensor& x) const;            // over the ranks

 private:
  Comm& ranks_;
  std::vector<Range> tokens_;  // of each rank
};

}  // namespace apus
