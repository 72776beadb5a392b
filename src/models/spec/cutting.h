// SPDX-License-Identifier: Apache-2.0
// Whether processes can share out the matrices of a model: heads of attention, feed-forwards, the vocabulary. Follows
// from the description alone.
#pragma once

#include <string>

#include "models/spec/decoder_spec.h"

namespace apus {

// What of the model cannot be cut, as the end of "cannot be cut: ..."; empty: all of it can.
std::string why_uncut(const DecoderSpec& spec);
// Why each process must have all heads of attention; empty: it need not. Of both ways to share them out.
std::string why_heads_stay(const DecoderSpec& spec);

}  // namespace apus
