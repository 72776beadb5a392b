// SPDX-License-Identifier: Apache-2.0
// Any text, until one of several marks stands in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "guide/grammar.h"
#include "guide/vocabulary.h"

namespace apus::guide {

struct Mark {
  std::string text;
  Node after;  // what follows it; Grammar::never(): it must not stand there
};

// Marks may overlap; the one that is complete first counts, and of those that end together the longest. Special tokens
// in a mark may be written out, or stand for themselves. `end`: where the text may end without a mark, what follows.
// Fault::Usage, beginning with `where`, when the marks are too long together.
Node marked_text(Grammar& g, const Vocabulary& words, const std::vector<Mark>& marks, std::optional<Node> end,
                 const std::string& where);

}  // namespace apus::guide
