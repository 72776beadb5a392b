// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace apus {
namespace {

constexpr size_t kMaxPattern = 1 << 16;
constexpr uint32_t kMatchLimit = 10'000'000, kDepthLimit = 100'000, kHeapLimitKiB = 64 * 1024;

// PCRE2's \s takes U+180E in and its \w leaves combining marks out, so both are written out, as Oniguruma has them (with
// its Latin-1 numbers among \w). They stand inside [...].
constexpr const char* kSpaceSet = "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr const char* kNotSpaceSet =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{d7ff}\\x{e000}-\\x{10ffff}";
constexpr const char* kWordSet =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}";

// One escape, `c` being what follows the backslash: its translation, or "" to keep it.
std::string escape(char c, bool in_set, const std::string& where) {
  const auto set = [&](const char* chars, bool negated) { return str(negated ? "[^" : "[", chars, "]"); };
  switch (c) {
    case 's': return in_set ? kSpaceSet : set(kSpaceSet, false);
    case 'S': return in_set ? kNotSpaceSet : set(kSpaceSet, true);
    case 'w': return in_set ? kWordSet : set(kWordSet, false);
    case 'W':
      require(!in_set, Fault::Model, where, ": \\W inside [...] is not supported");
      return set(kWordSet, true);
    case 'd': return "\\p{Nd}";
    case 'D': return "\\P{Nd}";
    case 'h': return in_set ? "0-9a-fA-F" : "[0-9a-fA-F]";  // Oniguruma: a hexadecimal digit
    case 'H':
      require(!in_set, Fault::Model, where, ": \\H inside [...] is not supported");
      return "[^0-9a-fA-F]";
    default: return "";
  }
}

}  // namespace

std::string to_pcre(const std::string& pattern, const std::string& where) {
  std::string out;
  bool in_set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const std::string other = escape(pattern[i + 1], in_set, where);
      out += other.empty() ? pattern.substr(i, 2) : other;
      ++i;
    } else if (!in_set && c == '[') {
      in_set = true;
      out += c;
      if (pattern.compare(i + 1, 1, "^") == 0) out += pattern[++i];
      if (pattern.compare(i + 1, 1, "]") == 0) out += "\\]", ++i;
    } else if (in_set && c == '[') {
      const size_t end = pattern.compare(i + 1, 1, ":") == 0 ? pattern.find(":]", i + 2) : std::string::npos;
      require(end != std::string::npos, Fault::Model, where,
              ": a set inside a set is not supported in the pattern ", pattern, " (write \\[ for the character)");
      out += pattern.substr(i, end + 2 - i);
      i = end + 1;
    } else if (in_set && c == '&' && pattern.compare(i + 1, 1, "&") == 0) {
      fail(Fault::Model, where, ": the intersection && in a set is not supported in the pattern ", pattern);
    } else {
      if (c == ']') in_set = false;
      out += c;
    }
  }
  return out;
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  std::string where;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Regex::Regex(const std::string& pattern, const std::string& where) {
  require(pattern.size() <= kMaxPattern, Fault::Model, where, ": a pattern of ", pattern.size(), " bytes; at most ", kMaxPattern, " are read");
  const std::string translated = to_pcre(pattern, where);
  auto made = std::make_unique<Code>();
  made->where = where;
  int error = 0;
  PCRE2_SIZE at = 0;
  made->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (!made->code) {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    fail(Fault::Model, where, ": the pattern ", pattern, " cannot be read: ", reinterpret_cast<char*>(text), " (near character ", at,
         " of ", translated, ")");
  }
  pcre2_jit_compile(made->code, PCRE2_JIT_COMPLETE);  // where there is no JIT the interpreter serves
  made->context = pcre2_match_context_create(nullptr);
  pcre2_set_match_limit(made->context, kMatchLimit);
  pcre2_set_depth_limit(made->context, kDepthLimit);
  pcre2_set_heap_limit(made->context, kHeapLimitKiB);
  code_ = std::move(made);
}
Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::optional<std::pair<size_t, size_t>> Regex::find(std::string_view text, size_t from) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int got = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), code_->context);
  if (got == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
    got = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), code_->context);
  if (got == PCRE2_ERROR_NOMATCH) return std::nullopt;
  require(got >= 0, Fault::Data, code_->where, ": matching the pattern took more than the time or memory allowed (PCRE2 error ", got, ")");
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
  require(ends[0] >= from && ends[0] <= ends[1], Fault::Data, code_->where, ": the pattern moves the start of its match (\\K), which is not supported");
  return std::pair{static_cast<size_t>(ends[0]), static_cast<size_t>(ends[1])};
}

}  // namespace apus
