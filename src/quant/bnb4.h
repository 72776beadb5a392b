// SPDX-License-Identifier: Apache-2.0
// bitsandbytes' four bits: NF4 and FP4. A weight, flattened, is blocks of 64 codes with one absolute maximum each; with
// double quantisation those are codes too.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/json.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

struct Wish;

std::unique_ptr<Matrix> open_bnb4(const StoredLayer& layer, Shape shape);

struct Bnb4Options {
  bool nf4 = true;           // else FP4
  bool double_quant = true;  // the blocks' maxima too
  int64_t block = 64;
  std::string dtype = "bfloat16";  // of the weight that was quantised, as the file will say
};
Pieces quantise_bnb4(std::span<const float> weight, Shape shape, const Bnb4Options& options);

// bitsandbytes' quantization_config, of four bits or of eight (quant/int8.h).
Json bnb_config(bool four, const Wish& wish, const Json& model_config, const Json& plain);

}  // namespace apus::quant
