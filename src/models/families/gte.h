// SPDX-License-Identifier: Apache-2.0
// GTE's layers, under the names of either of its files.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

DecoderSpec read_gte(const Config& config, const char* backbone);

}  // namespace apus
