// SPDX-License-Identifier: Apache-2.0
// What SmolVLM shares with Idefics 3.
#pragma once

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

DecoderSpec read_idefics3(const Config& c);
// How its tower stands in a GGUF file beside the text's, which is Llama's.
GgufTower idefics3_gguf_tower();

}  // namespace apus
