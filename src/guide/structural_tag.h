// SPDX-License-Identifier: Apache-2.0
// Answers in which texts, JSON, patterns and tags stand in an order: vLLM's and XGrammar's structural tags.
#pragma once

#include <string>

#include "base/json.h"
#include "guide/grammar.h"
#include "guide/vocabulary.h"

namespace apus::guide {

// {"type": "structural_tag", "format": {...}}, or as it was written before formats: "structures" of begin, schema and
// end, and their "triggers". `where` begins the messages of errors (Fault::Usage).
Node structural_tag(Grammar& g, const Vocabulary& words, const Json& tag, const std::string& where);

}  // namespace apus::guide
