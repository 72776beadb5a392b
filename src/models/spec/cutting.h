// SPDX-License-Identifier: Apache-2.0
// Whether processes can share out the matrices of a model, heads of attention, feed-forwards, the vocabulary, and how
// they can share out the tokens of rows. Follows from the description alone.
#pragma once

#include <string>

#include "models/spec/decoder_spec.h"

namespace apus {

// What of the model cannot be cut, as the end of "cannot be cut: ..."; empty: all of it can.
std::string why_uncut(const DecoderSpec& spec);
TokenSharing token_sharing(const DecoderSpec& spec);

// Of ranks that share out the tokens of rows: `heads` neighbours share out the heads of attention, and among `groups`
// of them keys and values go round.
struct TokenSharers {
  int64_t heads = 1, groups = 1;
};
// `tensor`: ranks that share out matrices, and with them the heads, besides.
TokenSharers token_sharers(const TokenSharing& model, int64_t ranks, int64_t tensor);

}  // namespace apus
