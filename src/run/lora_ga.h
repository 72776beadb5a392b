// SPDX-License-Identifier: Apache-2.0
// --init_weights lora-ga before a run: gradients of the weights over its first rows, and factors made of them.
#pragma once

#include "run/tuned_model.h"
#include "train/algorithm.h"

namespace apus {

class SampleSource;

// All ranks together: each takes the gradients of its own rows. The rows begin anew afterwards.
void begin_lora_by_gradients(const TrainRun& options, Algorithm& algorithm, SampleSource& rows, const Forward& forward,
                             TunedModel& tuned, Comm& ranks, c10::Device device);

}  // namespace apus
