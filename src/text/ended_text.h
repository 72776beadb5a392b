// SPDX-License-Identifier: Apache-2.0
// A plain text as a model of vectors reads it: its tokens and an end mark.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace apus {

// The tokenizer's own mark where it sets one, else its eos_token, so that a text's last token is always the same.
std::vector<int32_t> ended_text(const Tokenizer& tokenizer, const std::string& text);

// The texts of a conversation, a blank between them: an instruction before a query.
std::string joined_texts(const Json& messages);

}  // namespace apus
