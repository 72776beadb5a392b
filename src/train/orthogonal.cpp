// SPDX-License-Identifier: Apache-2.0
#include "train/orthogonal.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm.h>

namespace apus {

at::Tensor orthogonal(const at::Tensor& matrix, int64_t iterations) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;  // a quintic whose iteration drives singular values towards 1
  at::Tensor x = matrix.size(0) > matrix.size(1) ? matrix.t().contiguous() : matrix.clone();
  x.div_(x.norm().add_(1e-7));
  for (int64_t i = 0; i < iterations; ++i) {
    const at::Tensor gram = x.mm(x.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, b, c);
    x = at::addmm(x, polynomial, x, a, 1);
  }
  return matrix.size(0) > matrix.size(1) ? x.t() : x;
}

}  // namespace apus
