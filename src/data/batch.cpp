// SPDX-License-Identifier: Apache-2.0
#include "data/batch.h"

namespace apus {

Batch Batch::to(at::Device device) const {
  Batch out = *this;
  for (at::Tensor* t : {&out.id_T, &out.label_T, &out.weight_T, &out.step.position, &out.step.cu_q, &out.step.cu_k})
    if (t->defined()) *t = t->to(device);
  return out;
}

}  // namespace apus
