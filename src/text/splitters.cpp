// SPDX-License-Identifier: Apache-2.0
#include "text/splitters.h"

#include "text/unicode.h"

namespace apus {

const char* const kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

using unicode::CharTable;
using unicode::kLetter;
using unicode::kNumber;
using unicode::kSpace;

constexpr uint16_t kOneOf = kLetter | kNumber | kSpace;

const char* after(const char* p) { return p + unicode::utf8_length(static_cast<unsigned char>(*p)); }
bool is_newline(char c) { return c == '\r' || c == '\n'; }

// Past 's 't 're 've 'm 'll 'd, `p` being at the apostrophe; nullptr if it is none of them.
template <bool kAnyCase>
const char* contraction(const char* p, const char* end) {
  const auto lower = [](char c) { return kAnyCase && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  const std::ptrdiff_t left = end - p;
  if (left < 2) return nullptr;
  const char a = lower(p[1]), b = left > 2 ? lower(p[2]) : '\0';
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
  if (kAnyCase && p[1] == '\xC5' && left > 2 && p[2] == '\xBF') return p + 3;  // U+017F folds to s
  return nullptr;
}

struct Scan {
  const CharTable& table;
  const char* end;

  uint16_t traits(const char* p) const { return table[unicode::next_char(p)] & kOneOf; }

  // Past the characters from `p` on whose class is `wanted`.
  const char* run(const char* p, uint16_t wanted) const {
    while (p < end) {
      const char* q = p;
      if ((table[unicode::next_char(q)] & kOneOf) != wanted) break;
      p = q;
    }
    return p;
  }

  // \s+(?!\S)|\s+ : the run of white space, less its last character if more text follows and one remains.
  const char* blanks(const char* p) const {
    const char* stop = run(p, kSpace);
    if (stop == end) return stop;
    const char* last = stop;
    unicode::previous_char(last);
    return last > p ? last : stop;
  }
};

template <int kDigits>
size_t split_modern(const CharTable& table, std::string_view text, size_t from) {
  const char *base = text.data(), *end = base + text.size(), *p = base + from;
  const Scan scan{table, end};
  const auto at = [&](const char* q) { return static_cast<size_t>(q - base); };
  if (*p == '\'')
    if (const char* q = contraction<true>(p, end)) return at(q);
  const uint16_t kind = scan.traits(p);
  if (kind == kLetter) return at(scan.run(p, kLetter));
  const char* next = after(p);
  if (kind == kNumber) {
    for (int i = 1; i < kDigits && next < end && scan.traits(next) == kNumber; ++i) next = after(next);
    return at(next);
  }
  if (!is_newline(*p) && next < end && scan.traits(next) == kLetter) return at(scan.run(next, kLetter));
  // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
  const char* mark = *p == ' ' ? next : p;
  if (const char* q = scan.run(mark, 0); q > mark) {
    while (q < end && is_newline(*q)) ++q;
    return at(q);
  }
  // `\s*[\r\n]+`: up to the last line break of the white space
  const char* stop = scan.run(p, kSpace);
  for (const char* q = stop; q > p; --q)
    if (is_newline(q[-1])) return at(q);
  return at(scan.blanks(p));
}

}  // namespace

size_t split_qwen2(const CharTable& table, std::string_view text, size_t from) {
  return split_modern<1>(table, text, from);
}
size_t split_llama3(const CharTable& table, std::string_view text, size_t from) {
  return split_modern<3>(table, text, from);
}

size_t split_gpt2(const CharTable& table, std::string_view text, size_t from) {
  const char *base = text.data(), *end = base + text.size(), *p = base + from;
  const Scan scan{table, end};
  const auto at = [&](const char* q) { return static_cast<size_t>(q - base); };
  if (*p == '\'')
    if (const char* q = contraction<false>(p, end)) return at(q);
  const char* word = *p == ' ' && p + 1 < end ? p + 1 : p;
  const uint16_t kind = scan.traits(word);
  if (kind != kSpace) return at(scan.run(word, kind));
  return at(scan.blanks(p));
}

Splitter find_splitter(const std::string& regex) {
  if (regex == kQwen2Regex) return &split_qwen2;
  if (regex == kLlama3Regex) return &split_llama3;
  if (regex == kGpt2Regex) return &split_gpt2;
  return nullptr;
}

}  // namespace apus
