// SPDX-License-Identifier: Apache-2.0
// Output head and cross-entropy in one, in chunks of tokens.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> loss_sum f32 [], nll f32 [T], correct bool [T], d_hidden [T, D] and d_head [V, D] (of loss_sum; their inputs' types)
  // when asked. weight f32 [T], absent: ones. chunk: tokens at a time, 0: let the op choose.
  m.def(
      "head_loss(Tensor hidden, Tensor head, Tensor label, Tensor? weight, float label_smoothing, bool dft, bool need_hidden, "
      "bool need_head, int chunk) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
}
