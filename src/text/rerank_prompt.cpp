// SPDX-License-Identifier: Apache-2.0
#include "text/rerank_prompt.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/options.h"

namespace apus {

void RerankWords::fields(OptionTable& v) {
  v("reranker_positive_token", yes, "the word for a document that answers (GENERATIVE_RERANKER_POSITIVE_TOKEN)")
      .must_match()
      .restored("model");
  v("reranker_negative_token", no,
    "generative_reranker: the word for a document that does not answer (GENERATIVE_RERANKER_NEGATIVE_TOKEN)")
      .must_match()
      .restored("model");
  v("reranker_instruction", instruction, "what is to be judged, where a row has no system message")
      .must_match()
      .restored("model");
}

int32_t token_of_word(const Tokenizer& tokenizer, const std::string& word) {
  const std::vector<int32_t> ids = tokenizer.encode(word);
  require(ids.size() == 1, Fault::Model, "'", word, "' is ", ids.size(),
          " tokens of this tokenizer, and a reranker compares one token with another: choose words by "
          "--reranker_positive_token and --reranker_negative_token");
  return ids[0];
}

Json rerank_messages(const std::string& query, const std::string& document, const std::string& instruction,
                     const RerankWords& words) {
  const std::string task = str(
      "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
      "answer can only be \"",
      words.yes, "\" or \"", words.no, "\".");
  const std::string question = str("<Instruct>: ", instruction.empty() ? words.instruction : instruction,
                                   "\n<Query>: ", query, "\n<Document>: ", document);
  return Json::array({{{"role", "system"}, {"content", task}}, {{"role", "user"}, {"content", question}}});
}

Json no_thoughts() { return {{"enable_thinking", false}}; }

}  // namespace apus
