// SPDX-License-Identifier: Apache-2.0
// The words of a text, which blanks part, and the first token of each.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace apus {

struct WordPlace {
  std::string word;
  size_t token = 0;  // among the text's ids
};

// `ids`: what the text became, with the tokenizer's marks around it. Nothing where they are those of another text, or a
// word got no token.
std::vector<WordPlace> word_places(const Tokenizer& tokenizer, std::string_view text, std::span<const int32_t> ids);

// What a model that labels tokens says of words: the likeliest label of each one's first token. logits: of all tokens,
// one behind the other, `labels` numbers each.
struct LabelledWord {
  std::string word;
  int64_t label = 0;
  double probability = 0;
};
std::vector<LabelledWord> labelled_words(const std::vector<WordPlace>& words, const std::vector<float>& logits,
                                         int64_t labels);

}  // namespace apus
