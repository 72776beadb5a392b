// SPDX-License-Identifier: Apache-2.0
// An answer as JSON: in checkpoints, and between processes.
#pragma once

#include "algos/answers.h"
#include "base/json.h"

namespace apus {

// Fault::Usage: its question has media, which stay where they are. `flag`: what asks for it.
Json answer_record(const Answer& answer, const char* flag);
Answer answer_of_record(const Json& record);

}  // namespace apus
