// SPDX-License-Identifier: Apache-2.0
// Processors of tests, made of what their files say, without a tokenizer.
#pragma once

#include "media/processor.h"

namespace apus::test {

inline std::shared_ptr<const MediaProcessor> tower_processor(const std::string& type, Json preprocessor, Json config) {
  config["model_type"] = type;
  return make_media_processor({std::move(config), std::move(preprocessor), nullptr, {}, std::nullopt});
}

inline Json tower_of(int64_t image, int64_t patch, const char* type = "") {
  return {{"vision_config", {{"model_type", type}, {"image_size", image}, {"patch_size", patch}}}};
}

}  // namespace apus::test
