// SPDX-License-Identifier: Apache-2.0
#include "text/word_places.h"

#include <algorithm>
#include <cmath>

namespace apus {

std::vector<WordPlace> word_places(const Tokenizer& tokenizer, std::string_view text, std::span<const int32_t> ids) {
  const std::vector<Tokenizer::Piece> pieces = tokenizer.encode_offsets(text, true);
  if (!std::equal(pieces.begin(), pieces.end(), ids.begin(), ids.end(),
                  [](const Tokenizer::Piece& piece, int32_t id) { return piece.id == id; }))
    return {};
  constexpr std::string_view kBlanks = " \t\r\n\f\v";
  std::vector<WordPlace> out;
  size_t next = 0;
  for (size_t begin = text.find_first_not_of(kBlanks); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBlanks, begin), text.size());
    // A piece may begin with the blank before the word.
    while (next < pieces.size() && (pieces[next].end <= begin || pieces[next].begin == pieces[next].end)) ++next;
    if (next == pieces.size() || pieces[next].begin >= end) return {};
    out.push_back({std::string(text.substr(begin, end - begin)), next});
    begin = text.find_first_not_of(kBlanks, end);
  }
  return out;
}

std::vector<LabelledWord> labelled_words(const std::vector<WordPlace>& words, const std::vector<float>& logits,
                                         int64_t labels) {
  std::vector<LabelledWord> out;
  for (const WordPlace& place : words) {
    const auto first = logits.begin() + static_cast<int64_t>(place.token) * labels, end = first + labels;
    const auto best = std::max_element(first, end);
    double sum = 0;
    for (auto each = first; each != end; ++each) sum += std::exp(static_cast<double>(*each) - *best);
    out.push_back({place.word, best - first, 1 / sum});
  }
  return out;
}

}  // namespace apus
