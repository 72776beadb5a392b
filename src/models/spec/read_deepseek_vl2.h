// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// DeepSeek-VL2, whose files call themselves deepseek_vl_v2 as those of DeepSeek-OCR do (is_deepseek_vl2).
DecoderSpec read_deepseek_vl2(const Config& config);
// What config.json of its sizes says: "tiny", "small" or "".
Json deepseek_vl2_says(const std::string& size);

}  // namespace apus
