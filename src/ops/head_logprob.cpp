// SPDX-License-Identifier: Apache-2.0
// Log-probabilities and entropies of labels, in chunks of tokens.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> logprob f32 [T], entropy f32 [T] (undefined unless asked), lse f32 [T] of the logits over temperature (0 where ignored)
  m.def(
      "head_logprob(Tensor hidden, Tensor head, Tensor label, float temperature, bool entropy, int chunk) -> "
      "(Tensor, Tensor, Tensor)");
  // -> d_hidden, d_head. entropy is the forward's, needed with grad_entropy.
  m.def(
      "head_logprob_backward(Tensor? grad_logprob, Tensor? grad_entropy, Tensor hidden, Tensor head, Tensor label, Tensor lse, "
      "Tensor? entropy, float temperature, bool need_hidden, bool need_head, int chunk) -> (Tensor, Tensor)");
}
