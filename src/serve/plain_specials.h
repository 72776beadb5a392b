// SPDX-License-Identifier: Apache-2.0
// Special tokens that people wrote into their messages stay text: otherwise a user could end his own turn and speak as
// the system. The template's own are tokens.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace apus {

class PlainSpecials {
 public:
  explicit PlainSpecials(const Tokenizer& tokenizer);

  // The messages with every special token in their texts marked, so that it is known again once they are rendered.
  Json marked(Json messages) const;
  static std::string unmarked(std::string text);
  // The ids of a rendered text: what stands between two tokens of the template, and has marks, is read as plain text.
  std::vector<int32_t> encode(const std::string& rendered) const;
  static bool has_marks(const std::string& text);

 private:
  void mark(Json& text) const;
  // Where the next special token begins, from here on, and how long it is; npos: there is none.
  std::pair<size_t, size_t> next_special(const std::string& text, size_t from) const;

  const Tokenizer& tokenizer_;
  std::vector<std::string> specials_;  // the longest first
};

}  // namespace apus
