// SPDX-License-Identifier: Apache-2.0
// The pre-tokenisers of tokenizer.json: where a text is cut before the model sees it.
#pragma once

#include <memory>
#include <vector>

#include "text/splitters.h"
#include "text/token_json.h"
#include "text/token_text.h"

namespace apus {

// Pieces of a text as spans of it, none empty, in order; spans may leave bytes out.
using Cuts = std::vector<Span>;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Cuts the pieces further; may rewrite the text. `at_start`: the text begins where the whole input begins.
  virtual void apply(TokenText& text, Cuts& cuts, bool at_start) const = 0;
};

// The stages of a pre_tokenizer (or its absence), Sequences flattened.
struct PreTokenizers {
  std::vector<std::unique_ptr<const PreTokenizer>> stages;
  // The text reaches the model as plain bytes. The last stage would spell them in the byte alphabet; instead the
  // vocabulary has been turned back to bytes.
  bool bytes = false;
  // Set if all that happens is this split: no list of pieces is needed.
  Splitter only = nullptr;
  // Some stage treats the beginning of the input in its own way: the text must remember where its bytes came from.
  bool by_origin = false;

  Cuts apply(TokenText& text, bool at_start) const;
};

// `bytes_allowed`: the model can work on bytes (BPE).
PreTokenizers make_pre_tokenizers(const JsonPart* part, bool bytes_allowed);

}  // namespace apus
