// SPDX-License-Identifier: Apache-2.0
// A text as the tokenizer cuts it.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace apus {

// Tokens of a text of which none crosses a cut: what counts differently is read apart.
inline std::vector<Tokenizer::Piece> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                               std::vector<size_t> cuts) {
  std::vector<Tokenizer::Piece> pieces = tokenizer.encode_offsets(text);
  const auto crossed = [&](size_t cut) {
    const auto at = std::upper_bound(pieces.begin(), pieces.end(), cut,
                                     [](size_t c, const Tokenizer::Piece& p) { return c < p.end; });
    return at != pieces.end() && at->begin < cut && cut < at->end;
  };
  cuts.erase(std::remove_if(cuts.begin(), cuts.end(), [&](size_t cut) { return !crossed(cut); }), cuts.end());
  if (cuts.empty()) return pieces;
  cuts.push_back(text.size());
  pieces.clear();
  size_t begin = 0;
  for (const size_t cut : cuts) {
    for (Tokenizer::Piece piece : tokenizer.encode_offsets(text.substr(begin, cut - begin))) {
      piece.begin += static_cast<uint32_t>(begin);
      piece.end += static_cast<uint32_t>(begin);
      pieces.push_back(piece);
    }
    begin = cut;
  }
  return pieces;
}

// What a tokenizer puts before every text (BOS).
inline std::vector<int32_t> beginning(const Tokenizer& tokenizer) {
  const std::vector<int32_t> plain = tokenizer.encode("a"), whole = tokenizer.encode("a", true);
  return {whole.begin(), std::search(whole.begin(), whole.end(), plain.begin(), plain.end())};
}

}  // namespace apus
