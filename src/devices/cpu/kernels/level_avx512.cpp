// SPDX-License-Identifier: Apache-2.0
// Inner loops compiled for AVX-512 with BF16 (cmake/CpuKernels.cmake gives the flags).
#include "devices/cpu/kernels/lanes.h"
#include "devices/cpu/kernels/level.h"

namespace apus::cpu {
static constexpr Kernels with_lanes(Kernels k) {
  k.spread = spread_row, k.lanes = lanes;
  return k;
}
extern const Kernels kAvx512Kernels = with_lanes(kTable);

static constexpr Kernels with_pairs(Kernels k) {
  k.b16.multiply = multiply_pairs, k.b16.dots = dots<Pairs>, k.b16.widen_panel = nullptr;
  return k;
}
extern const Kernels kAvx512PairKernels = with_pairs(kTable);
}  // namespace apus::cpu
