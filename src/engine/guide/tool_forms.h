// SPDX-License-Identifier: Apache-2.0
// Tool calls as the formats of text/tool_calls.h write them, as grammars.
#pragma once

#include "engine/guide.h"
#include "engine/guide/grammar.h"
#include "engine/guide/vocabulary.h"

namespace apus::guide {

Node tool_calls(Grammar& g, const Vocabulary& words, const GuideTools& tools);

}  // namespace apus::guide
