// SPDX-License-Identifier: Apache-2.0
// A template's text as tokens; white-space control is done here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace apus::jinja {

struct Token {
  enum class Type {
    Data,
    VariableBegin,
    VariableEnd,
    BlockBegin,
    BlockEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    End
  };
  Type type;
  // Data, names and operators as written; for strings and numbers the spelling of the value.
  std::string text;
  int line;

  bool is(Type t, std::string_view s) const { return type == t && text == s; }
  bool op(std::string_view s) const { return is(Type::Operator, s); }
  bool name(std::string_view s) const { return is(Type::Name, s); }
  std::string describe() const;  // for messages
};

// Newlines become \n; one at the very end is dropped. Throws Problem with a line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace apus::jinja
