// SPDX-License-Identifier: Apache-2.0
// What LFM2 with and without experts share.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// Its feed-forwards are still as wide as the file says.
DecoderSpec read_lfm2(const Config& c);

}  // namespace apus
