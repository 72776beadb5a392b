// SPDX-License-Identifier: Apache-2.0
// The decoders of tokenizer.json: how the spellings of tokens become text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_json.h"

namespace apus {

class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  // Rewrites a row of spellings; the text is what they join to.
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

std::unique_ptr<const TokenDecoder> make_decoder(const JsonPart& part);

// Removes the space before punctuation and English contractions, as checkpoints with clean_up_tokenization_spaces ask.
std::string clean_up_spaces(std::string text);

// The byte of a spelling "<0x0A>"; -1 for any other.
int byte_of(std::string_view token);

}  // namespace apus
