// SPDX-License-Identifier: Apache-2.0
// What models of other names share with DeepSeek-V3.
#pragma once

#include "base/json.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

DecoderSpec read_deepseek_v3(const Config& c);
// rope_scaling of the models whose context was stretched from 4096.
Json deepseek_v3_yarn();
// The settings that every config.json of these models has.
Json deepseek_v3_says();

}  // namespace apus
