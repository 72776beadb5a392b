// SPDX-License-Identifier: Apache-2.0
// Rotary embedding, halves convention.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // cos, sin [T, R] f32 (or f64); inverse turns backwards, which is also the gradient.
  m.def("rope(Tensor q, Tensor k, Tensor cos, Tensor sin, bool inverse) -> (Tensor, Tensor)");
}
