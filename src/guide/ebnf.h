// SPDX-License-Identifier: Apache-2.0
// Grammars that users write: GBNF of llama.cpp, EBNF of XGrammar.
#pragma once

#include <string>

#include "guide/grammar.h"

namespace apus::guide {

// name ::= "literal" [a-z] . ( ... | ... )* + ? {2,3}   # comment
// What the rule `root` says. `where` begins the messages of errors (Fault::Usage).
Node ebnf(Grammar& g, const std::string& text, const std::string& where);

}  // namespace apus::guide
