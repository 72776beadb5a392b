// SPDX-License-Identifier: Apache-2.0
// Sum of squares over tensors.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // -> f64 scalar on the CPU
  m.def("sum_of_squares(Tensor[] tensors) -> Tensor");
}
