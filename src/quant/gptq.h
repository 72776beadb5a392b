// SPDX-License-Identifier: Apache-2.0
// GPTQ's storage: codes of 2, 3, 4 or 8 bits along the inputs, a scale and a zero for each output and group of inputs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/json.h"
#include "quant/gptq_form.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

GptqForm gptq_form(const Json& said);  // of a quantization_config
std::unique_ptr<Matrix> open_gptq(const StoredLayer& layer, Shape shape, const GptqForm& form);

// A weight as integers: w[o][i] = scale[g(i)][o] * (code[o][i] - zero[g(i)][o]).
struct Integers {
  std::vector<uint8_t> code;      // [rows, columns]
  std::vector<float> scale;       // [groups, rows]
  std::vector<uint8_t> zero;      // [groups, rows]
  std::vector<int32_t> group_of;  // [columns]
};
// Written with f16 scales.
Pieces pack_gptq(const Integers& integers, Shape shape, const GptqForm& form);

// The range of some weights of one row.
struct Range8 {
  float scale, zero;
};
Range8 range_of(std::span<const float> weights, int64_t bits, bool symmetric);
float nearest_code(float weight, const Range8& range, int64_t bits);

// To the nearest, without making good for errors.
Integers round_to_integers(std::span<const float> weight, Shape shape, const GptqForm& form, bool symmetric);

}  // namespace apus::quant
