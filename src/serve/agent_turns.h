// SPDX-License-Identifier: Apache-2.0
// What an agent's requests and its end mean for the record of its episode. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace apus {

// `asked` was answered with `said`, and `asks` is the next prompt: what stands behind the answer in it. Absent: it does
// not go on from that answer. The chat template may write an answer's blanks in another way than the model did.
std::optional<std::vector<int32_t>> behind_agents_turn(const std::vector<int32_t>& asked,
                                                       const std::vector<int32_t>& said,
                                                       const std::vector<int32_t>& asks,
                                                       const std::vector<int32_t>& ends, const Tokenizer& tokenizer);

// The last line of what an agent printed: a number, or an object with "reward"; nothing is 0. Fault::Data for others.
double reward_printed(const std::string& printed);

}  // namespace apus
