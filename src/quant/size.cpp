// SPDX-License-Identifier: Apache-2.0
#include "quant/size.h"

#include <algorithm>

#include "quant/format.h"
#include "quant/scheme.h"

namespace apus::quant {

std::optional<double> bits_of_weight(const Json& model_config, const Wish& wish) {
  const auto scheme = scheme_of(model_config);
  if (!scheme) return wish.any() ? std::optional(wish.bits_of_weight()) : std::nullopt;
  for (const auto& [name, format] : Registry<Format>::of().all()) {
    if (std::find(format.methods.begin(), format.methods.end(), scheme->method) == format.methods.end()) continue;
    if (const double bits = format.bits(scheme->said); bits > 0) return bits;
  }
  fail(Fault::Bug, "no format counts the weights of ", scheme->method);
}

}  // namespace apus::quant
