// SPDX-License-Identifier: Apache-2.0
// Heads that guess tokens ahead, as families describe them. No tensor library.
#pragma once

#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// The checkpoint's head is of this form, with a layer like the last one that attends; none where no layer does.
void use_guess_head(DecoderSpec& spec, GuessForm form);
// DeepSeek-V3's: num_nextn_predict_layers says how many stand behind the last layer, under the numbers that follow.
void use_layers_ahead(const Config& config, DecoderSpec& spec, GuessForm form = {});
// Of a model with that layer alone.
DecoderSpec one_layer(const DecoderSpec& spec, int64_t layer);

}  // namespace apus
