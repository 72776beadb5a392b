// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/kernels/kernels.h"

#include "devices/cpu/kernels/isa.h"

namespace apus::cpu {

const Kernels& kernels() {
#if defined(__x86_64__)
  static const Kernels amx = [] {
    Kernels k = kAvx512Kernels;
    k.b16.multiply = multiply_amx, k.b16.widen_panel = nullptr;
    k.multiply_rows = multiply_rows_amx, k.multiply_few = multiply_few_amx, k.finish_turned = finish_turned_amx;
    k.enter = enter_amx, k.leave = leave_amx;
    return k;
  }();
  switch (isa()) {
    case Isa::Amx:
      return amx;
    case Isa::Avx512:
      return bf16_pairs_pay() ? kAvx512PairKernels : kAvx512Kernels;
    case Isa::Avx2:
      return kAvx2Kernels;
    default:
      break;
  }
#elif defined(__aarch64__)
  switch (isa()) {
    case Isa::I8mm:
      return kI8mmKernels;
    case Isa::Dotprod:
      return kDotprodKernels;
    default:
      break;
  }
#endif
  return kGenericKernels;
}

}  // namespace apus::cpu
