// SPDX-License-Identifier: Apache-2.0
// How large quantised weights are in memory.
#pragma once

#include <optional>

#include "base/json.h"
#include "quant/wish.h"

namespace apus::quant {

// Bits of a weight, scales and zeros included, of a checkpoint with this config.json, loaded with this wish; none: they
// are plain.
std::optional<double> bits_of_weight(const Json& model_config, const Wish& wish);

}  // namespace apus::quant
