// SPDX-License-Identifier: Apache-2.0
// A text on its way through normalisers and pre-tokenisers, which remembers where its bytes came from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/unicode.h"

namespace apus {

struct Span {
  uint32_t begin, end;  // bytes
  bool operator==(const Span&) const = default;
};

struct TokenText {
  std::string text;
  // For each byte of `text` the characters of the input that it came from; empty unless tracked.
  std::vector<Span> origin;
  bool tracked = false;
  // How long rewriting may make it: a compatibility form makes 11 times as much,
  // a chain of replacements could go on for ever.
  size_t limit = 0;

  static size_t limit_of(size_t bytes) { return (size_t{16} << 20) + 32 * bytes; }

  // Part of a valid UTF-8 input that begins at byte `at` of it.
  static TokenText of(std::string_view part, size_t at, bool tracked) {
    TokenText made{std::string(part), {}, tracked, limit_of(part.size())};
    if (!tracked) return made;
    made.origin.reserve(part.size());
    for (size_t i = 0; i < part.size();) {
      const size_t n = std::min<size_t>(static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(part[i]))),
                                        part.size() - i);
      const Span whole{static_cast<uint32_t>(at + i), static_cast<uint32_t>(at + i + n)};
      made.origin.insert(made.origin.end(), n, whole);
      i += n;
    }
    return made;
  }
  TokenText slice(size_t begin, size_t end) const {
    TokenText part{text.substr(begin, end - begin), {}, tracked, limit};
    if (tracked)
      part.origin.assign(origin.begin() + static_cast<std::ptrdiff_t>(begin),
                         origin.begin() + static_cast<std::ptrdiff_t>(end));
    return part;
  }
};

// Rewrites a TokenText from left to right.
class TokenEdit {
 public:
  explicit TokenEdit(const TokenText& from) : from_(from) {
    made_.tracked = from.tracked;
    made_.limit = from.limit;
    made_.text.reserve(from.text.size() + 16);
    if (from.tracked) made_.origin.reserve(from.origin.size() + 16);
  }
  void keep(size_t begin, size_t end) {
    bound(end - begin);
    made_.text.append(from_.text, begin, end - begin);
    if (made_.tracked)
      made_.origin.insert(made_.origin.end(), from_.origin.begin() + static_cast<std::ptrdiff_t>(begin),
                          from_.origin.begin() + static_cast<std::ptrdiff_t>(end));
  }
  // Puts `text` in place of the bytes [begin, end); where these are none, it is inserted.
  void put(std::string_view text, size_t begin, size_t end) {
    bound(text.size());
    made_.text += text;
    if (!made_.tracked) return;
    const auto& o = from_.origin;
    Span span{0, 0};
    if (begin < end)
      span = {o[begin].begin, o[end - 1].end};
    else if (begin > 0)
      span = {o[begin - 1].end, o[begin - 1].end};
    else if (!o.empty())
      span = {o[0].begin, o[0].begin};
    made_.origin.insert(made_.origin.end(), text.size(), span);
  }
  size_t size() const { return made_.text.size(); }
  TokenText take() { return std::move(made_); }

 private:
  void bound(size_t more) const {
    require(made_.text.size() + more <= made_.limit, Fault::Data, "the tokenizer's normalizer makes more than ",
            made_.limit, " bytes of this text");
  }
  const TokenText& from_;
  TokenText made_;
};

}  // namespace apus
