// SPDX-License-Identifier: Apache-2.0
// What compressed-tensors' quantization_config says, whichever of its formats a layer is of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus::quant {

struct Compressed {
  std::string format;
  int64_t bits = 4;
  std::vector<int64_t> block = {128, 128};  // of FP8: rows, columns
};

// All groups must agree, as one layer does not say to which it belongs. Fault::Model.
Compressed compressed_settings(const Json& said);

}  // namespace apus::quant
