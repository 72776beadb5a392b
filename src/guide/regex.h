// SPDX-License-Identifier: Apache-2.0
// Regular expressions without back-references: what an automaton can follow. Look-around and word borders need one that
// follows several texts at once (guide/texts.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "guide/grammar.h"

namespace apus::guide {

struct Expr {
  enum Kind { Chars, Sequence, Choice, Repeat, Begin, End, Look } kind = Sequence;
  CharSet set{};              // Chars: one character of it
  std::vector<Expr> parts{};  // Repeat, Look: one
  uint32_t min = 1, max = 1;  // Repeat
  // Look, at the text before or behind this point: what it ends or begins with, or, where absent, does not.
  bool before = false, absent = false;
  bool operator==(const Expr&) const = default;
};

// Matches the whole text. `where` begins the messages of errors (Fault::Usage).
Expr parse_regex(std::string_view pattern, std::string_view where);
// As JSON schema means a pattern: found anywhere, unless ^ and $ say otherwise.
Expr parse_search(std::string_view pattern, std::string_view where);

bool looks_around(const Expr& e);  // some part of it does: Texts can follow it, add_expr cannot

struct Lengths {
  uint64_t min, max;  // characters; kUnlimited
};
Lengths lengths(const Expr& e);

// JsonString: between the quotes, with what JSON must escape escaped.
enum class Spelling { Plain, JsonString };
Node add_expr(Grammar& g, const Expr& e, Spelling spelling, Node next);
Node add_chars(Grammar& g, const CharSet& set, Spelling spelling, Node next);

}  // namespace apus::guide
