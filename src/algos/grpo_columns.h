// SPDX-License-Identifier: Apache-2.0
// What GRPO's micro-batches carry beside their tokens.
#pragma once

#include "train/batch.h"

namespace apus::grpo_column {

// Columns of the tokens, each at the place whose label is the token that it is about.
inline constexpr const char* kOld = "old_logprob";
inline constexpr const char* kReference = "reference_logprob";
inline constexpr const char* kEngine = "engine_logprob";
inline constexpr const char* kTeacher = "teacher_logprob";
inline constexpr const char* kAdvantage = "advantage";
// Of the sequences: what each says of an answer in several conversations; not there where all are of one.
inline constexpr const char* kShare = "share";

inline bool is_in(const Batch& batch, const char* name) { return batch.token_columns.count(name) > 0; }

}  // namespace apus::grpo_column
