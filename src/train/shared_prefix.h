// SPDX-License-Identifier: Apache-2.0
// Answers to one prompt, which is computed once for all of them: a tree of one stem and a branch for each answer. The
// stem is a sequence of its own, and each branch one whose queries see the stem's keys and their own.
#pragma once

#include <functional>
#include <memory>

#include "models/spec/decoder_spec.h"
#include "train/batch.h"

namespace apus {

// Of the T tokens of a batch U are computed; the K keys are those that the branches see, one sequence behind the other.
struct SharedPrefixes {
  at::Tensor row_U;    // which of the batch's tokens
  at::Tensor place_T;  // where among the U each of the batch's tokens is
  at::Tensor key_K;    // rows of the U keys
  Step step;           // of the U tokens: stems and branches, or whole sequences that share nothing
};

// The sequences of each of the batch's groups share what all of them begin with. Null where nothing is shared.
std::shared_ptr<const SharedPrefixes> shared_prefixes(const Batch& batch);

// Whether sharing comes to the same in this model: attention sees the keys that it is given, and is all that looks at
// other tokens.
bool can_share_prefixes(const DecoderSpec& spec);

// The final hidden states of a batch's tokens, [T, D], as `run` gives them of other tokens in another step. Without
// shared prefixes those are the batch's own. `step`: of the batch; it learns what a head wants to know of the pass.
using RunTokens = std::function<at::Tensor(const Inputs&, Step&)>;
at::Tensor hidden_states(const Batch& batch, Step& step, const RunTokens& run);

}  // namespace apus
