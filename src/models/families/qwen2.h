// SPDX-License-Identifier: Apache-2.0
// Qwen2's architecture, on which others build.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

DecoderSpec read_qwen2(const Config& config);

}  // namespace apus
