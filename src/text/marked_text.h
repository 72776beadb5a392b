// SPDX-License-Identifier: Apache-2.0
// Texts as an encoder reads them: with the tokens that the tokenizer puts around a text, and around and between two.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace apus {

struct MarkedText {
  std::vector<int32_t> ids;
  // Where the second of two texts begins; 0: there is one, or the tokenizer does not tell them apart.
  int32_t second = 0;
};

struct TextLimit {
  int64_t tokens = 0;       // marks included; 0: none
  bool cut_begins = false;  // of texts that are too long; else their ends
};

// Of two texts the longer one is cut first.
MarkedText marked_text(const Tokenizer& tokenizer, const std::string& first, const std::optional<std::string>& second,
                       const TextLimit& limit = {});

// A conversation: the texts of its messages, and those from message `second` on are the second text; 0: from the first
// answer on. One whose first message is an answer is one text.
MarkedText marked_talk(const Tokenizer& tokenizer, const Json& messages, size_t second, const TextLimit& limit = {});

}  // namespace apus
