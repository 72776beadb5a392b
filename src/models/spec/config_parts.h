// SPDX-License-Identifier: Apache-2.0
// The part of config.json that is about text: text_config, which of Omni models stands in thinker_config; llm_config of
// InternVL, language_config of DeepSeek; or the whole.
#pragma once

#include <nlohmann/json.hpp>

#include "base/json.h"

namespace apus {

template <class AnyJson>  // Json or const Json
AnyJson& text_settings(AnyJson& config) {
  AnyJson* part = &config;
  for (const char* key : {"thinker_config", "text_config", "llm_config", "language_config"})
    if (part->is_object() && part->contains(key) && (*part)[key].is_object()) part = &(*part)[key];
  return *part;
}

}  // namespace apus
