// SPDX-License-Identifier: Apache-2.0
// What a model is asked that says by a word whether a document answers a query: the form of Qwen3-Reranker.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "text/tokenizer.h"

namespace apus {

class OptionTable;

struct RerankWords {
  std::string yes = "yes", no = "no";
  std::string instruction = "Given a web search query, retrieve relevant passages that answer the query";
  void fields(OptionTable& v);
};

// The token that a word is; Fault::Model when it is none or several.
int32_t token_of_word(const Tokenizer& tokenizer, const std::string& word);

// Messages for the chat template, to be rendered with no_thoughts(). `instruction`
// empty: that of `words`.
Json rerank_messages(const std::string& query, const std::string& document, const std::string& instruction,
                     const RerankWords& words);
Json no_thoughts();  // what the chat template is told besides

}  // namespace apus
