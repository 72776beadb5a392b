// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fstream>

#include "tests/train/training.h"

namespace apus::test {

// The answers of the golden file as rows, with the log-probs that they were sampled with.
inline void write_rollouts(const golden::Case& c, const std::filesystem::path& file) {
  const auto counted = [&](const char* ids, const char* mask, int64_t row) {
    std::vector<int64_t> out;
    const at::Tensor id = c.tensor(ids)[row], counts = c.tensor(mask)[row];
    for (int64_t i = 0; i < id.numel(); ++i)
      if (counts[i].item<int64_t>()) out.push_back(id[i].item<int64_t>());
    return out;
  };
  std::ofstream out(file);
  for (int64_t row = 0; row < 6; ++row) {
    const auto completion = counted("grpo/completion_ids", "grpo/completion_mask", row);
    std::vector<double> logprobs;
    for (size_t i = 0; i < completion.size(); ++i)
      logprobs.push_back(c.tensor("grpo/old_per_token_logps")[row][static_cast<int64_t>(i)].item<double>());
    out << Json{{"group", row / 3},
                {"prompt_ids", counted("grpo/prompt_ids", "grpo/prompt_mask", row)},
                {"completion_ids", completion},
                {"reward", c.tensor("grpo/rewards")[row].item<double>()},
                {"logprobs", logprobs}}
               .dump()
        << "\n";
  }
}

}  // namespace apus::test
