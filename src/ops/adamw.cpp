// SPDX-License-Identifier: Apache-2.0
// One AdamW step in place.
#include <torch/library.h>

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // master: f32 copy of param that is updated instead, param being rounded from it.
  m.def(
      "adamw(Tensor(a!) param, Tensor grad, Tensor(b!) m, Tensor(c!) v, Tensor(d!)? master, float lr, float beta1, float beta2, "
      "float eps, float weight_decay, int step, float grad_scale) -> ()");
}
