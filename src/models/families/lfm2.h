// SPDX-License-Identifier: Apache-2.0
// What LFM2 with and without experts share.
#pragma once

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// Its feed-forwards are still as wide as the file says.
DecoderSpec read_lfm2(const Config& c);
// How they stand in GGUF files.
GgufForm lfm2_gguf();

}  // namespace apus
