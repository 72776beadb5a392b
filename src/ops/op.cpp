// SPDX-License-Identifier: Apache-2.0
#include "ops/op.h"

#include <ATen/ops/matmul.h>

namespace apus::ops {

at::Tensor matmul(const at::Tensor& a, const at::Tensor& b) {
  if (has_matmul(a)) return at::matmul(a, b);
  return at::matmul(a.to(at::kFloat), b.to(at::kFloat)).to(a.scalar_type());
}

}  // namespace apus::ops
