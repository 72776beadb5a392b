// SPDX-License-Identifier: Apache-2.0
// A checkpoint with other settings or more tokens than its files say (--rope_scaling, --new_special_tokens): a folder
// of links to its files, in which the changed ones stand, kept in the user's cache. Whoever reads a checkpoint reads
// it as any other. No tensor library.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace apus {

struct Adaptation {
  std::string rope_scaling;              // linear, dynamic, yarn, or a JSON object; empty: as it is
  std::optional<int64_t> max_model_len;  // that the scaling has to reach
  std::vector<std::string> new_tokens;   // special ones
};

// config.json with this scaling: the factor is the next whole one that reaches max_model_len.
Json with_rope_scaling(Json config, const std::string& scaling, std::optional<int64_t> max_model_len);
// tokenizer.json and tokenizer_config.json with these tokens behind the last one; those it has already change nothing.
// Gives the number of tokens there are then.
int64_t add_special_tokens(Json& tokenizer, Json& tokenizer_config, const std::vector<std::string>& tokens);

// The folder itself where nothing changes.
std::filesystem::path adapted_folder(const std::filesystem::path& folder, const Adaptation& wanted);

// What --new_special_tokens lists: tokens, or .txt files with one in a line.
std::vector<std::string> listed_tokens(const std::vector<std::string>& words);

}  // namespace apus
