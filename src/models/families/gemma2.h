// SPDX-License-Identifier: Apache-2.0
// What every Gemma has from the second on.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus::families::gemma2 {

// Its activation, norms before and after each branch, and embeddings times the root of their width.
void use_layers(const Config& config, DecoderSpec& spec);

}  // namespace apus::families::gemma2
