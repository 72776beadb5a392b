// SPDX-License-Identifier: Apache-2.0
// HQQ: codes of 1 to 8 bits in groups, with a scale and a zero that is no integer.
#pragma once

#include <memory>
#include <span>

#include "base/json.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

struct HqqForm {
  int64_t bits = 4, group = 64;
  int64_t axis = 1;  // 1: groups along a row; 0: across
};

HqqForm hqq_form(const Json& said);  // of a quantization_config
std::unique_ptr<Matrix> open_hqq(const StoredLayer& layer, Shape shape, const HqqForm& form);

// improve: zeros that make good for outliers, found in up to 20 rounds, as HQQ does by default.
Pieces quantise_hqq(std::span<const float> weight, Shape shape, const HqqForm& form, bool improve);

}  // namespace apus::quant
