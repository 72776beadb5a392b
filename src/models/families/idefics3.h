// SPDX-License-Identifier: Apache-2.0
// What SmolVLM shares with Idefics 3.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

DecoderSpec read_idefics3(const Config& c);

}  // namespace apus
