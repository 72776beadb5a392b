// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: routing, and the experts' feed-forward.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> weight [T, k] in the logits' type, expert int64 [T, k], best first
  m.def("route_topk(Tensor logits, int k, bool normalise) -> (Tensor, Tensor)");
  m.def("route_topk_backward(Tensor grad, Tensor logits, Tensor expert, bool normalise) -> Tensor");
  m.def("moe_ffn(Tensor x, Tensor weight, Tensor expert, Tensor gate_up, Tensor down) -> Tensor");
  // -> dx, dweight, dgate_up, ddown, each only when asked
  m.def(
      "moe_ffn_backward(Tensor grad, Tensor x, Tensor weight, Tensor expert, Tensor gate_up, Tensor down, bool[4] need) -> "
      "(Tensor, Tensor, Tensor, Tensor)");
}
