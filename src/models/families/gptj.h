// SPDX-License-Identifier: Apache-2.0
// What CodeGen shares with GPT-J.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

DecoderSpec read_gptj(const Config& c);

}  // namespace apus
