// SPDX-License-Identifier: Apache-2.0
#include "base/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

namespace apus {

struct Pattern::Code {
  Code(const std::string& expression, const std::string& where) : where(where) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), 0, &error, &at, nullptr);
    if (code) {
      // Where the system forbids it, the interpreter does the same slower.
      pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
      return;
    }
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    fail(Fault::Usage, where, ": '", expression,
         "' is no valid regular expression: ", reinterpret_cast<const char*>(text), " at character ", at + 1);
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code = nullptr;
  std::string where;
};

Pattern::Pattern(const std::string& expression, const std::string& where)
    : code_(std::make_shared<Code>(expression, where)) {}

bool Pattern::run(const std::string& name, unsigned options) const {
  struct Free {
    void operator()(pcre2_match_data* d) const { pcre2_match_data_free(d); }
    void operator()(pcre2_match_context* c) const { pcre2_match_context_free(c); }
  };
  const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create_from_pattern(code_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), 1'000'000);  // an expression that explodes is an error, not a hang
  const int found = pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, options,
                                data.get(), context.get());
  require(found >= 0 || found == PCRE2_ERROR_NOMATCH, Fault::Usage, code_->where,
          ": the regular expression needs too many steps on '", name, "'");
  return found >= 0;
}

bool Pattern::matches(const std::string& name) const { return run(name, PCRE2_ANCHORED | PCRE2_ENDANCHORED); }
bool Pattern::begins(const std::string& name) const { return run(name, PCRE2_ANCHORED); }
bool Pattern::found_in(const std::string& name) const { return run(name, 0); }

}  // namespace apus
