// SPDX-License-Identifier: Apache-2.0
// GPTQ's storage: codes of 2, 3, 4 or 8 bits along the inputs, a scale and a zero for each output and group of inputs.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

struct GptqForm {
  int64_t bits = 4;
  int64_t group = 128;       // inputs; -1: all of them are one
  bool plain_zeros = false;  // "gptq_v2" stores zeros as they are, the older form less one
  int64_t group_of(int64_t columns) const { return group > 0 ? group : columns; }
};

bool is_gptq(const Pieces& pieces);
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
