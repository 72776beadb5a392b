// SPDX-License-Identifier: Apache-2.0
// Words of a trained prompt (prompt tuning). No tokenizer knows them: they stand before a text's own words, and an
// adapter holds what the model reads for them.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

namespace apus {

// Above every vocabulary.
inline constexpr int32_t kFirstPromptWord = 1 << 30;

inline void put_prompt_before(std::vector<int32_t>& ids, int64_t words) {
  ids.insert(ids.begin(), static_cast<size_t>(words), 0);
  std::iota(ids.begin(), ids.begin() + words, kFirstPromptWord);
}

}  // namespace apus
