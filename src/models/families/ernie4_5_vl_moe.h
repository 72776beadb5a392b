// SPDX-License-Identifier: Apache-2.0
// ERNIE 4.5 VL as transformers describes it: what its authors' own files are read as, too.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus::families::ernie4_5_vl_moe {

DecoderSpec read_ernie_vl(const Config& config);
Json tower_says();

}  // namespace apus::families::ernie4_5_vl_moe
