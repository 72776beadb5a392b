// SPDX-License-Identifier: Apache-2.0
#include "quant/compressed.h"

#include <algorithm>
#include <array>
#include <optional>

#include "quant/format.h"

namespace apus::quant {

namespace {
constexpr std::array kFormats = {"pack-quantized",  "int-quantized",        "float-quantized",
                                 "naive-quantized", "nvfp4-pack-quantized", "mixed-precision"};
}

Compressed compressed_settings(const Json& said) {
  Compressed out;
  out.format = setting<std::string>(said, "format", "");
  require(std::find(kFormats.begin(), kFormats.end(), out.format) != kFormats.end(), Fault::Model,
          "config.json: compressed-tensors' format '", out.format,
          "' is not read; pack-quantized, int-quantized, float-quantized, naive-quantized, nvfp4-pack-quantized and "
          "mixed-precision are");
  std::optional<int64_t> bits;
  const Json groups = said.value("config_groups", Json::object());
  for (const auto& [name, group] : groups.items()) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) continue;
    const Json& weights = group["weights"];
    const auto found = setting<int64_t>(weights, "num_bits", 4);
    require(!bits || *bits == found, Fault::Model, "config.json: quantization_config has groups of ", *bits, " and of ",
            found, " bits, which is not read; groups of the same bits are");
    bits = found;
    const auto block = setting<std::vector<int64_t>>(weights, "block_structure", {128, 128});
    if (block.size() == 2) out.block = block;
  }
  out.bits = bits.value_or(4);
  return out;
}

}  // namespace apus::quant
