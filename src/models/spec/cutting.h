// SPDX-License-Identifier: Apache-2.0
// Whether processes can share out the matrices of a model: heads of attention, feed-forwards, the vocabulary. Follows
// from the description alone.
#pragma once

#include <string>

#include "models/spec/decoder_spec.h"

namespace apus {

// What of the model cannot be cut, as the end of "cannot be cut: ..."; empty: all of it can.
std::string why_uncut(const DecoderSpec& spec);

}  // namespace apus
