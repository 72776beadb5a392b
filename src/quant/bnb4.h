// SPDX-License-Identifier: Apache-2.0
// bitsandbytes' four bits: NF4 and FP4. A weight, flattened, is blocks of 64 codes with one absolute maximum each; with
// double quantisation those are codes too.
#pragma once

#include <memory>
#include <span>

#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

// Whether these are the pieces of such a weight.
bool is_bnb4(const Pieces& pieces);
std::unique_ptr<Matrix> open_bnb4(const StoredLayer& layer, Shape shape);

struct Bnb4Options {
  bool nf4 = true;           // else FP4
  bool double_quant = true;  // the blocks' maxima too
  int64_t block = 64;
  std::string dtype = "bfloat16";  // of the weight that was quantised, as the file will say
};
Pieces quantise_bnb4(std::span<const float> weight, Shape shape, const Bnb4Options& options);

}  // namespace apus::quant
