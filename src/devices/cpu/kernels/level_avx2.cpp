// SPDX-License-Identifier: Apache-2.0
// Inner loops compiled for AVX2 and FMA (cmake/CpuKernels.cmake gives the flags).
#include "devices/cpu/kernels/level.h"

namespace apus::cpu {
extern const Kernels kAvx2Kernels = kTable;
}
