// SPDX-License-Identifier: Apache-2.0
// How a checkpoint wants to be sampled: generation_config.json, and which tokens end an answer. No tensor library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/answer/text_engine.h"

namespace apus {

// Absent: not stated.
struct SamplingWishes {
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, max_new_tokens, min_new_tokens, no_repeat_ngram_size;
};

struct GenerationConfig {
  SamplingWishes wishes;
  std::vector<int32_t> eos;               // generation_config.json's, else config.json's
  std::vector<std::string> not_followed;  // "num_beams 4": wishes that nothing here fulfils
};

// A missing generation_config.json states nothing; what stands in it is checked (Fault::Model names the key).
GenerationConfig read_generation_config(const std::filesystem::path& folder);

// What the request says, else what the checkpoint says, else neutral. Without a temperature from the request the
// checkpoint's do_sample decides between drawing and greedy; without any statement it is greedy, as in transformers.
Sampling resolve(const SamplingWishes& request, const SamplingWishes& checkpoint);

}  // namespace apus
