// SPDX-License-Identifier: Apache-2.0
#include "nn/singular.h"

#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>

#include <tuple>

#include "tensor/noise.h"

namespace apus {

Singular all_singular(const at::Tensor& matrix) {
  Singular out;
  std::tie(out.u, out.s, out.v) = at::linalg_svd(matrix, /*full_matrices=*/false);
  return out;
}

Singular iterated_singular(const at::Tensor& matrix, int64_t width, int64_t iterations, uint64_t seed) {
  const auto orthogonal = [](const at::Tensor& m) { return std::get<0>(at::linalg_qr(m)); };
  const at::Tensor start = normal_noise({matrix.size(1), width}, 0, 1, seed).to(matrix.device());
  at::Tensor q = orthogonal(matrix.mm(start));
  for (int64_t i = 0; i < iterations; ++i) q = orthogonal(matrix.mm(orthogonal(matrix.t().mm(q))));
  Singular out = all_singular(q.t().mm(matrix));
  out.u = q.mm(out.u);
  return out;
}

}  // namespace apus
