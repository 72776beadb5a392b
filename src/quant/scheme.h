// SPDX-License-Identifier: Apache-2.0
// What the quantization_config of a checkpoint says, and a layer's weight by it. Which layers are quantised is said by
// their tensors, not by lists in the configuration.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "quant/matrix.h"
#include "quant/pieces.h"

namespace apus::quant {

struct Scheme {
  std::string method;  // quant_method: "bitsandbytes", "gptq", ...
  Json said;           // the whole quantization_config
};

// Of a whole config.json; absent: it is not quantised. Fault::Model names what is read where the method is not.
std::optional<Scheme> scheme_of(const Json& config);

// Of a name behind a layer's: whether it is one of a quantised weight's tensors; whether plain layers have none such.
bool belongs_to_weight(const std::string& piece);
bool marks_quantised(const std::string& piece);

// Null: these are the pieces of no format.
std::unique_ptr<Matrix> open_weight(const Scheme& scheme, const StoredLayer& layer, Shape shape);

}  // namespace apus::quant
