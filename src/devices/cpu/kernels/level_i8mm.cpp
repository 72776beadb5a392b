// SPDX-License-Identifier: Apache-2.0
// Inner loops compiled for NEON with SDOT and SMMLA (cmake/CpuKernels.cmake gives the flags).
#include "devices/cpu/kernels/level.h"

namespace apus::cpu {
extern const Kernels kI8mmKernels = kTable;
}
