// SPDX-License-Identifier: Apache-2.0
#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace apus {
namespace {

constexpr size_t kMaxPattern = 1 << 16;
constexpr uint32_t kMatchLimit = 10'000'000, kDepthLimit = 100'000, kHeapLimitKiB = 64 * 1024;

}  // namespace

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
  require(pattern.size() <= kMaxPattern, Fault::Model, where, ": a pattern of ", pattern.size(), " bytes; at most ",
          kMaxPattern, " are read");
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
    fail(Fault::Model, where, ": the pattern ", pattern, " cannot be read: ", reinterpret_cast<char*>(text),
         " (near character ", at, " of ", translated, ")");
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
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(pcre2_match_data_create(1, nullptr),
                                                                                 &pcre2_match_data_free);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int got = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data.get(), code_->context);
  if (got == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
    got = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                      code_->context);
  if (got == PCRE2_ERROR_NOMATCH) return std::nullopt;
  require(got >= 0, Fault::Data, code_->where,
          ": matching the pattern took more than the time or memory allowed (PCRE2 error ", got, ")");
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
  require(ends[0] >= from && ends[0] <= ends[1], Fault::Data, code_->where,
          ": the pattern moves the start of its match (\\K), which is not supported");
  return std::pair{static_cast<size_t>(ends[0]), static_cast<size_t>(ends[1])};
}

}  // namespace apus
