// SPDX-License-Identifier: Apache-2.0
// Layers with a state where ranks share out the tokens (nn/token_share.h). A state is read from a row's begin to its
// end, so ranks exchange tokens of all heads for all tokens of some heads, and what was read back. A convolution looks
// back a few tokens, and the ranks that have these send them.
#pragma once

#include "nn/token_share.h"
#include "ops/state_scan.h"

namespace apus {

// Shapes: T all tokens, t this rank's; G, N heads of keys and of values, g, n those that this rank reads; V value size.
class ScanShare {
 public:
  ScanShare(const TokenShare& tokens, const ops::StateInputs& own);
  ops::StateInputs all_tokens(const ops::StateInputs& own) const;  // [t, G, .], [t, N, .] -> [T, g, .], [T, n, .]
  at::Tensor own_heads(const at::Tensor& x_N) const;               // [N, .] -> [n, .]; undefined: stays so
  at::Tensor own_tokens(const at::Tensor& y_TnV) const;            // -> [t, N, V]
  bool none() const { return heads().size == 0; }

 private:
  Range heads() const { return parts_.q[static_cast<size_t>(tokens_.ranks().rank())]; }
  const TokenShare& tokens_;
  HeadParts parts_;
};

// ops::causal_conv of this rank's tokens, [t, C].
at::Tensor convolved_with_those_before(const TokenShare& tokens, const at::Tensor& x_tC, const at::Tensor& weight_CJ,
                                       const at::Tensor& bias_C);

}  // namespace apus
