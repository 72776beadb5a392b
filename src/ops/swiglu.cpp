// SPDX-License-Identifier: Apache-2.0
// silu(gate) * up.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  m.def("swiglu_backward(Tensor grad, Tensor gate, Tensor up) -> (Tensor, Tensor)");
}
