// SPDX-License-Identifier: Apache-2.0
// What config.json says of layers that keep a state (nn/state_form.h).
#pragma once

#include <functional>

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// Those layers keep a state for which `keeps` says so.
void use_states(const Config& config, DecoderSpec& spec, const StateForm& form,
                const std::function<Keeps(int64_t layer)>& keeps);

// As layer_types says, linear_attention (mamba) or full_attention (attention); where the file has none, `unsaid`.
std::function<Keeps(int64_t layer)> read_layer_types(const Config& config, int64_t layers,
                                                     const std::function<Keeps(int64_t layer)>& unsaid);

// What the families with Mamba-2 layers say in the same words. `inner`: the width of its values; `heads`, `groups`,
// `state`: where the file leaves them out.
struct MambaDefaults {
  int64_t inner = 0, heads = 128, groups = 1, state = 256;
};
MambaForm read_mamba(const Config& config, const MambaDefaults& defaults);

}  // namespace apus
