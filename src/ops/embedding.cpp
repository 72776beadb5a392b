// SPDX-License-Identifier: Apache-2.0
// Rows of a table.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("embedding(Tensor id, Tensor weight) -> Tensor");
  // -> the dense gradient [rows, D], of grad's type
  m.def("embedding_backward(Tensor grad, Tensor id, int rows) -> Tensor");
}
