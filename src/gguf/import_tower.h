// SPDX-License-Identifier: Apache-2.0
// config.json and preprocessor_config.json of a model that sees, made of its two GGUF files. No tensor library.
#pragma once

#include <string>

#include "base/json.h"
#include "gguf/form.h"

namespace apus {

// `text`: what config_of_gguf makes of the text's file.
Json config_of_tower(const GgufHeader& text_file, const GgufHeader& tower, const GgufTowerFamily& family, Json text);
Json preprocessor_of_tower(const GgufHeader& tower, const GgufTower& form);
// `vision`: vision_config, which the sizes go on pointing to.
GgufSizes sizes_of_tower(const GgufHeader& tower, const Json& vision);

// With the names that depend on vision_config.
GgufForm form_of_tower(const GgufTower& tower, const Json& vision);

// Files of before May 2025 call the two matrices of a feed-forward the other way round.
bool has_swapped_names(const GgufHeader& tower);
std::string with_swapped_name(const std::string& name);

// A setting under the name that config.json has for it.
void take_key(Json& config, const GgufSays& file, const GgufKey& key);

}  // namespace apus
