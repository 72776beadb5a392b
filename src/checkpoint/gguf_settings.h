// SPDX-License-Identifier: Apache-2.0
// What a GGUF file says beside its tensors, of a checkpoint folder: the model's shape, tokenizer, chat template. No
// tensor library.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gguf/mix.h"
#include "gguf/names.h"

namespace apus {

struct GgufSettings {
  const GgufFamily* family = nullptr;
  GgufModelFacts facts;
  std::vector<std::pair<std::string, GgufValue>> all;
  std::map<std::string, std::vector<float>> factors;  // tensors of them: what periods are multiplied by
};

// `name` is general.name. Fault::Model for a model that such files cannot describe, or that is not written.
GgufSettings gguf_settings(const std::filesystem::path& folder, const GgufMix& mix, const std::string& name);

// tokenizer.ggml.*: `rows` tokens, of which those that the tokenizer lacks are unused.
std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(const std::filesystem::path& folder, int64_t rows);

}  // namespace apus
