// SPDX-License-Identifier: Apache-2.0
// The parameters of a model by its description alone.
#pragma once

#include <vector>

#include "models/spec/decoder_spec.h"
#include "plan/model_facts.h"

namespace apus {

// Every one under the name and in the order of the model's own modules (models/decoder, nn).
std::vector<ParamFacts> parameters_of(const DecoderSpec& spec);

}  // namespace apus
