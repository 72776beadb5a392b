// SPDX-License-Identifier: Apache-2.0
// Phi-4-multimodal, from what transformers' config.json says of it.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus::families::phi4_multimodal {

// `forms`: how files hold its tensors, of a text part and of what hears of so many layers each.
DecoderSpec read_phi4(const Config& config, std::vector<DiskForm> (*forms)(int64_t layers, int64_t heard_layers));

}  // namespace apus::families::phi4_multimodal
