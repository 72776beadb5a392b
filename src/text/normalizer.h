// SPDX-License-Identifier: Apache-2.0
// The normalisers of tokenizer.json: what happens to a text before it is cut into words.
#pragma once

#include <memory>
#include <string_view>

#include "base/clock.h"
#include "text/token_json.h"
#include "text/token_text.h"

namespace apus {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(TokenText& text) const = 0;
  // True if it would not change this text; a quick test that may say false without need.
  virtual bool leaves(std::string_view text) const { return false; }
};

std::unique_ptr<const Normalizer> make_normalizer(const JsonPart& part);

// A time limit over all matches of one text: a pattern may be slow at every place without any single match
// reaching the limits that a match has.
class PatternTime {
 public:
  PatternTime(size_t bytes, const std::string& where)
      : where_(where), seconds_(2 + static_cast<double>(bytes) * 1e-5) {}
  void check() const {
    require(watch_.seconds() < seconds_, Fault::Data, where_, ": finding the pattern in a text took more than ",
            seconds_, " s");
  }

 private:
  const std::string& where_;
  const Stopwatch watch_;
  double seconds_;
};

// Regex or string of {"Regex": ...} / {"String": ...}, as normalisers, pre-tokenisers and decoders write patterns.
class TextPattern {
 public:
  explicit TextPattern(const JsonPart& part);  // the object itself
  ~TextPattern();
  TextPattern(TextPattern&&) noexcept;
  // Calls visit(begin, end) for every match from left to right. After an empty match one character is passed over.
  template <class Visit>
  void each(std::string_view text, Visit&& visit) const {
    size_t from = 0, last_end = std::string_view::npos;
    for (const PatternTime time(text.size(), where_); from <= text.size(); time.check()) {
      const auto match = find(text, from);
      if (!match) return;
      const auto [begin, end] = *match;
      if (begin == end) {
        if (begin != last_end) visit(begin, end);
        if (begin >= text.size()) return;
        from = begin + static_cast<size_t>(unicode::utf8_length(static_cast<unsigned char>(text[begin])));
      } else {
        visit(begin, end);
        from = end;
      }
      last_end = end;
    }
  }
  const std::string& regex() const { return regex_; }  // "" for a string

 private:
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from) const;
  std::string where_, string_, regex_;
  std::unique_ptr<class Regex> compiled_;
};

// precompiled_charsmap of SentencePiece models (charsmap.cpp).
std::unique_ptr<const Normalizer> make_charsmap(const JsonPart& part);

}  // namespace apus
