// SPDX-License-Identifier: Apache-2.0
// For tests of guided decoding: following a constraint at random, and what texts it takes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "guide/guide.h"
#include "tests/guide/allowed.h"
#include "tests/paths.h"

namespace apus::testing_guide {

struct Words {
  explicit Words(const std::string& folder)
      : tokenizer(Tokenizer::load(test::source_dir() / folder)),
        stop(*tokenizer->id("<|im_end|>")),
        words(make_guide_vocabulary(*tokenizer, std::vector<int32_t>{stop})) {
    for (int32_t t = 0; t < tokenizer->vocab_size(); ++t)
      if (tokenizer->has(t) && !tokenizer->is_special(t)) bytes.push_back({tokenizer->token_bytes(t), t});
  }
  std::shared_ptr<const Tokenizer> tokenizer;
  int32_t stop;
  GuideWords words;
  std::vector<std::pair<std::string, int32_t>> bytes;
};

inline const Words& small() {
  static const Words words("tests/data/text/tokenizers/qwen2-small");
  return words;
}
inline const Words& bundled() {
  static const Words words("assets/tokenizer");
  return words;
}

using test::allowed;
inline bool allows(Constraint& c, int32_t token) {
  const auto all = allowed(c);
  return std::binary_search(all.begin(), all.end(), token);
}

// Token by token, each of one byte: does the constraint take this text, and may the answer end there?
inline bool takes(const Words& w, const Constraint& constraint, const std::string& text) {
  const auto c = constraint.clone();
  for (const char b : text) {
    const auto at =
        std::find_if(w.bytes.begin(), w.bytes.end(), [&](const auto& e) { return e.first == std::string(1, b); });
    if (at == w.bytes.end() || !allows(*c, at->second)) return false;
    c->accept(at->second);
  }
  return allows(*c, w.stop);
}

// Any of the allowed tokens, and from `free` tokens on those that lead to an end: `close`, byte by byte, where it fits.
// Nothing: it did not end.
inline std::optional<std::string> ramble(const Words& w, const Constraint& constraint, Random& random, int free = 40,
                                         const std::string& close = "") {
  const auto c = constraint.clone();
  std::string text;
  size_t closed = 0;
  for (int i = 0; i < 4000; ++i) {
    auto tokens = allowed(*c);
    EXPECT_FALSE(tokens.empty()) << "nothing can follow " << text;
    if (tokens.empty()) return std::nullopt;
    const bool may_end = std::binary_search(tokens.begin(), tokens.end(), w.stop);
    if (c->finished() || (may_end && (i >= free || random.below(4) == 0))) return text;
    std::erase(tokens, w.stop);
    if (tokens.empty()) return text;
    int32_t next = tokens[random.below(tokens.size())];
    if (i >= free) {
      // What closes first, then what is short.
      int best = 1000;
      for (const int32_t t : tokens) {
        const std::string b = w.tokenizer->token_bytes(t);
        const size_t rank = b.size() == 1 ? std::string_view("\"}]ne").find(b) : std::string::npos;
        // n and e, of null and true, may also be letters of a key that never ends by them.
        const int score =
            rank < 3 ? static_cast<int>(rank)
                     : static_cast<int>(rank != std::string::npos ? 5 + random.below(20) : 10 + random.below(50));
        if (score < best) best = score, next = t;
        if (!close.empty() && b == std::string(1, close[closed])) best = -1, next = t;
      }
      if (!close.empty()) closed = best < 0 ? (closed + 1) % close.size() : 0;
    }
    text += w.tokenizer->token_bytes(next);
    c->accept(next);
  }
  return std::nullopt;
}

}  // namespace apus::testing_guide
