// SPDX-License-Identifier: Apache-2.0
// How GPTQ and AWQ share out scales and zeros.
#pragma once

#include <cstdint>

namespace apus::quant {

struct GptqForm {
  int64_t bits = 4;
  int64_t group = 128;       // inputs; -1: all of them are one
  bool plain_zeros = false;  // "gptq_v2" stores zeros as they are, the older form less one
  int64_t group_of(int64_t columns) const { return group > 0 ? group : columns; }
};

}  // namespace apus::quant
