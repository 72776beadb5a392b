// SPDX-License-Identifier: Apache-2.0
// How a checkpoint wants to be sampled: generation_config.json, and which tokens end an answer. No tensor library.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/answer/sampling_fields.h"

namespace apus {

struct GenerationConfig {
  SamplingWishes wishes;
  std::vector<int32_t> eos;               // generation_config.json's, else config.json's
  std::vector<std::string> not_followed;  // "num_beams 4": wishes that nothing here fulfils
};

// A missing generation_config.json states nothing; what stands in it is checked (Fault::Model names the key).
GenerationConfig read_generation_config(const std::filesystem::path& folder);

}  // namespace apus
