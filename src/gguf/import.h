// SPDX-License-Identifier: Apache-2.0
// A HuggingFace checkpoint's small files, made of the settings of a GGUF file. No tensor library.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "gguf/model.h"

namespace apus {

// config.json. Of the tensors names, shapes and types count.
Json config_of_gguf(const GgufHeader& header, const GgufFamily& family);
Json generation_config_of_gguf(const GgufHeader& header);  // generation_config.json
Json tokenizer_of_gguf(const GgufHeader& header);          // tokenizer.json
Json tokenizer_config_of_gguf(const GgufModel& model);     // tokenizer_config.json, with the chat template

// rope_scaling of config.json for factors that each period is multiplied by: llama3's where its rule gives them, else
// longrope's list.
Json scaling_of_factors(const std::vector<float>& factors, double theta, int64_t positions);

// How text is cut before merging, by the name that files have for it: normalizer and pre_tokenizer of tokenizer.json.
struct CutRule {
  Json normalizer, pre_tokenizer;
  bool ignore_merges = false;  // a piece that is in the vocabulary is taken whole
};
// Fault::Model for others, naming those that are known.
CutRule cut_rule(const std::string& name, const std::string& where);
// The name of what this tokenizer.json does; empty: there is none.
std::string cut_name(const Json& tokenizer);

// Kinds of tokens, as files number them.
namespace gguf_token {
inline constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
}

}  // namespace apus
