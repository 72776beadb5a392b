// SPDX-License-Identifier: Apache-2.0
// What Qwen3-VL's dense and mixed models, and Qwen3.5's, share: their tower.
#pragma once

#include "gguf/form.h"
#include "models/spec/read_seeing.h"

namespace apus {

// Learned positions beside the rotary ones.
SeeingSpec read_qwen3_tower(const Config& config);
// And the states of some layers added behind the decoder's first layers.
SeeingSpec read_qwen3_sight(const Config& config);

// What config.json of well-known models says: of every one, and of a tower of this size.
Json qwen3_sight_says();
Json qwen3_tower_says(int64_t out, bool small);

// The GGUF file of its tower, beside one of this architecture, which is another family's text.
GgufTower qwen3_gguf_tower(const std::string& architecture, const std::string& text, const std::string& part_type);

}  // namespace apus
