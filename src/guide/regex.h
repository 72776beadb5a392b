// SPDX-License-Identifier: Apache-2.0
// Regular expressions without back-references, word borders and look-around but for look-aheads at the beginning: what
// an automaton can follow.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "guide/grammar.h"

namespace apus::guide {

struct Expr {
  enum Kind { Chars, Sequence, Choice, Repeat, Begin, End } kind = Sequence;
  CharSet set{};              // Chars: one character of it
  std::vector<Expr> parts{};  // Repeat: one
  uint32_t min = 1, max = 1;  // Repeat
};

// Matches the whole text. `where` begins the messages of errors (Fault::Usage).
Expr parse_regex(std::string_view pattern, std::string_view where);
// As JSON schema means a pattern: found anywhere, unless ^ and $ say otherwise.
Expr parse_search(std::string_view pattern, std::string_view where);

// A pattern as parse_search has it that may begin with look-aheads: "^(?=.*[0-9])(?!x).{8,}$". A text must match `rest`
// and all of `ahead`, and none of `not_ahead`.
struct Looks {
  Expr rest;
  std::vector<Expr> ahead{}, not_ahead{};
};
Looks parse_looks(std::string_view pattern, std::string_view where);

struct Lengths {
  uint64_t min, max;  // characters; kUnlimited
};
Lengths lengths(const Expr& e);

// JsonString: between the quotes, with what JSON must escape escaped.
enum class Spelling { Plain, JsonString };
Node add_expr(Grammar& g, const Expr& e, Spelling spelling, Node next);
Node add_chars(Grammar& g, const CharSet& set, Spelling spelling, Node next);

}  // namespace apus::guide
