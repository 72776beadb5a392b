// SPDX-License-Identifier: Apache-2.0
// What tokenizer_config.json and special_tokens_map.json say of a tokenizer beside tokenizer.json.
#pragma once

#include <string>
#include <string_view>

#include "text/added_tokens.h"
#include "text/token_json.h"

namespace apus {

struct TokenizerParts;

// Takes what both files say; an absent file is an empty object.
void read_config(TokenizerParts& parts, const JsonPart& config, const JsonPart& map);

// What the class that tokenizer_config.json names has for "bos_token" and its like where no file gives one; or "".
std::string implied_special_token(const Json& config, std::string_view name);

// An added token as tokenizer.json and tokenizer_config.json write it.
AddedToken added_token(const JsonPart& part, int64_t id, bool special);
// The token's id is the one it has in the vocabulary;
// else `next`, where given, whatever the file says; else the file's.
void add_token(TokenizerParts& parts, AddedToken token, const std::string& where, int32_t* next = nullptr);
// The id of the next added token: behind the tokens of the vocabulary and those added before.
int32_t next_id(const TokenizerParts& parts);

}  // namespace apus
