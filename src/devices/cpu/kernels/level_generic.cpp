// SPDX-License-Identifier: Apache-2.0
// Inner loops compiled for the build's baseline (cmake/CpuKernels.cmake gives the flags).
#include "devices/cpu/kernels/level.h"

namespace apus::cpu {
extern const Kernels kGenericKernels = kTable;
}
