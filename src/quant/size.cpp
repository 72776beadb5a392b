// SPDX-License-Identifier: Apache-2.0
#include "quant/size.h"

#include "quant/scheme.h"

namespace apus::quant {

namespace {
constexpr double kScale = 16;  // bits, as a processor keeps scales and zeros of groups of less than 256 weights

// Codes of four and eight bits are kept so; the others as they are in files, with scales and zeros in f32.
double in_groups(int64_t bits, int64_t group, bool zeros) {
  const double number = bits == 4 || bits == 8 ? kScale : 2 * kScale;
  return static_cast<double>(bits) + (group > 0 ? number * (zeros ? 2 : 1) / static_cast<double>(group) : 0);
}
}  // namespace

std::optional<double> bits_of_weight(const Json& model_config, const Wish& wish) {
  const auto scheme = scheme_of(model_config);
  if (!scheme && !wish.any()) return std::nullopt;
  const std::string method = scheme ? scheme->method : *wish.method;
  if (method == "gptq" || method == "awq") return in_groups(scheme->gptq.bits, scheme->gptq.group, true);
  if (method == "compressed-tensors") return in_groups(scheme->packed_bits, 128, false);
  if (method == "hqq") {
    const HqqForm form = scheme ? scheme->hqq : HqqForm{wish.bits.value_or(4), 64, 1};
    return in_groups(form.bits, form.group, true);
  }
  if (method == "bnb" || method == "bitsandbytes") {
    const bool four = scheme ? model_config["quantization_config"].value("load_in_4bit", false) : wish.bits == 4;
    return four ? in_groups(4, 64, false) : in_groups(8, 0, false);
  }
  return in_groups(8, 128, false);  // FP8
}

}  // namespace apus::quant
