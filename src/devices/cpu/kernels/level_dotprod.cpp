// SPDX-License-Identifier: Apache-2.0
// Inner loops compiled for NEON with SDOT (cmake/CpuKernels.cmake gives the flags).
#include "devices/cpu/kernels/level.h"

namespace apus::cpu {
extern const Kernels kDotprodKernels = kTable;
}
