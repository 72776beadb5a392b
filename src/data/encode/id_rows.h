// SPDX-License-Identifier: Apache-2.0
// Rows that are token ids already: "input_ids" and "labels" (-100: not learnt), or several under prefixes, as
// "chosen_input_ids" and "rejected_input_ids". For what was encoded elsewhere, and to compare programs on one input.
#pragma once

#include <string>

#include "data/encode/encoder.h"

namespace apus {

// Whether the row holds the ids of what `prefix` names; empty: of the one text of the row.
bool has_ids(const Row& row, const std::string& prefix);

// A label is the token itself, or -100; without labels all are learnt. Rows longer than max_length are an error: ids
// are used as they are.
Sample sample_of_ids(const Row& row, const std::string& prefix, const EncodeOptions& options);

// Refuses a tokenizer that is not the model's own, before anything is learnt. Tokens of media stand for rows that come
// from elsewhere. `vocabulary` 0: not known.
void require_known_tokens(const Sample& sample, int64_t vocabulary, const Tokenizer& tokenizer);

}  // namespace apus
