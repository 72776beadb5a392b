// SPDX-License-Identifier: Apache-2.0
// AWQ for one decoder layer.
#pragma once

#include "checkpoint/calibrated_layer.h"

namespace apus {

// Scales what one operation hands to linear layers where the family allows it, clips, rounds. The layer's weights
// become those that are written.
void quantise_layer_by_awq(LayerAtHand& layer, int64_t group, CalibratedLayer& made);

}  // namespace apus
