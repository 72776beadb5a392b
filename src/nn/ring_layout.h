// SPDX-License-Identifier: Apache-2.0
// Which tokens each rank of a ring has, and which of them look at which of another's. Arithmetic alone.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/launch/mesh_layout.h"
#include "ops/ops.h"

namespace apus {

// Tokens [begin, begin + size) of a sequence, which are a rank's own from its row-th on.
struct TokenRun {
  int64_t sequence, begin, size, row;
  int64_t end() const { return begin + size; }
  Range rows() const { return {row, size}; }
};

// Each sequence is cut into twice as many pieces as there are ranks, and the i-th rank takes the i-th one from the
// front and the i-th from the back: of a token, which looks at all before it, each rank has as much to do. Pieces of
// short sequences may be empty, and are left out.
std::vector<TokenRun> zigzag(const std::vector<int32_t>& lengths, int rank, int ranks);
int64_t tokens_of(const std::vector<TokenRun>& runs);

// Whether any of these queries sees any of these keys. Of masks that look back.
bool look_at(const std::vector<TokenRun>& queries, const std::vector<TokenRun>& keys, const ops::Mask& mask);

// One call of the attention operator: the i-th rows of queries look at the i-th rows of keys.
struct RingCall {
  ops::Mask mask;
  std::vector<Range> q, k;
};
// All that queries see of these keys, of the same rank or of another; every key that a query sees in one call alone,
// every query once in the causal ones when the keys are its own rank's. Of masks that look back.
std::vector<RingCall> ring_calls(const std::vector<TokenRun>& queries, const std::vector<TokenRun>& keys,
                                 const ops::Mask& mask);

}  // namespace apus
