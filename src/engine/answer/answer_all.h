// SPDX-License-Identifier: Apache-2.0
// Asking a TextEngine for whole answers: for rollouts, tests and small tools. No tensor library.
#pragma once

#include "engine/answer/text_engine.h"

namespace apus {

struct FinishedAnswer {
  std::vector<TokenOut> tokens, prompt;
  Finish finish = Finish::None;
  std::string error;
  int64_t cached_tokens = 0;
  std::vector<int32_t> ids() const;
};

// All at once; returns when the last one is done, in the order of the requests. Their sinks are this function's.
std::vector<FinishedAnswer> generate(TextEngine& engine, std::vector<EngineRequest> requests);
// The i-th prompt with seed + i, so that equal prompts get different answers.
std::vector<FinishedAnswer> generate(TextEngine& engine, const std::vector<std::vector<int32_t>>& prompts,
                                     const Sampling& sampling);

}  // namespace apus
