// SPDX-License-Identifier: Apache-2.0
// Attention over packed sequences and over a paged cache.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> out [T, N, H], lse [N, T] f32: natural log of the sum of exp(scale q.k), -inf where a query sees nothing (out 0 there).
  m.def(
      "attention(Tensor q, Tensor k, Tensor v, Tensor cu_q, Tensor cu_k, int max_q, int max_k, float scale, bool causal, "
      "int window) -> (Tensor, Tensor)");
  // -> dq, dk, dv
  m.def(
      "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor cu_q, Tensor cu_k, "
      "int max_q, int max_k, float scale, bool causal, int window) -> (Tensor, Tensor, Tensor)");
  m.def(
      "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor cu_q, Tensor cu_k, Tensor block_table, int max_q, "
      "int max_k, float scale, bool causal, int window) -> Tensor");
}
