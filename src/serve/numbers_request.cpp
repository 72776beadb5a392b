// SPDX-License-Identifier: Apache-2.0
#include "serve/numbers_request.h"

#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/openai_request.h"

namespace apus {
namespace {

constexpr size_t kMostTexts = 2048;
constexpr const char* kTextsNotCut = "texts are not cut here: shorten them";

void read_common(const Fields& f, std::string& model, int& priority) {
  model = f.text("model").value_or("");
  priority = static_cast<int>(-f.whole("priority", -1'000'000, 1'000'000).value_or(0));
  f.cannot("truncate_prompt_tokens", nullptr, kTextsNotCut);
}

// vLLM's names for it, old and new.
std::optional<bool> read_activation(const Fields& f) {
  const auto old = f.boolean("activation"), now = f.boolean("use_activation");
  return now ? now : old;
}

std::vector<std::string> needed_texts(const Fields& f, const char* key) {
  std::vector<std::string> texts = f.texts(key, kMostTexts);
  if (texts.empty()) f.missing(key, "a text or a list of texts");
  return texts;
}

// Texts, or objects with one, as Jina's clients send them.
std::vector<std::string> read_documents(const Fields& f) {
  const Json* list = f.list("documents");
  if (!list || list->empty()) return f.missing("documents", "a list of texts"), std::vector<std::string>();
  if (list->size() > kMostTexts)
    refuse("documents", "'documents' has ", list->size(), " entries, at most ", kMostTexts, " are possible");
  std::vector<std::string> texts;
  for (size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const Json* text = entry.is_object() && entry.contains("text") ? &entry["text"] : &entry;
    if (!text->is_string())
      refuse("documents", "'documents[", i, "]' must be a text, or an object with one: {\"text\": ...}");
    texts.push_back(text->get<std::string>());
  }
  return texts;
}

}  // namespace

TextsCall read_texts_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  TextsCall call;
  read_common(f, call.model, call.priority);
  if (const Json* messages = f.list("messages")) {
    if (messages->empty()) refuse("messages", "'messages' is empty");
    call.messages = chat_messages(*messages);
    if (f.find("input")) refuse("input", "give 'input' or 'messages', not both");
  } else {
    call.inputs = read_inputs(f, "input");
  }
  call.base64 = f.choice("encoding_format", {"float", "base64"}) == "base64";
  call.activation = read_activation(f).value_or(true);
  call.ignored = f.unread({"user"});
  return call;
}

PairsCall read_score_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  PairsCall call;
  read_common(f, call.model, call.priority);
  const bool queries = f.find("queries") != nullptr;  // vLLM's newer names
  call.first = needed_texts(f, queries ? "queries" : "text_1");
  call.second = needed_texts(f, queries ? "documents" : "text_2");
  if (call.first.size() != 1 && call.first.size() != call.second.size())
    refuse("text_2", "there are ", call.first.size(), " first texts and ", call.second.size(),
           " second ones; wanted are as many, or one first text for all");
  call.instruction = f.text("instruction").value_or("");
  call.activation = read_activation(f);
  call.ignored = f.unread({"user"});
  return call;
}

PairsCall read_rerank_request(const Json& body, Json* schema) {
  const Fields f(body, "", schema);
  PairsCall call;
  read_common(f, call.model, call.priority);
  call.first = {f.needed_text("query")};
  call.second = read_documents(f);
  call.instruction = f.text("instruction").value_or("");
  // 0 is vLLM's word for all.
  if (const int64_t most = f.whole("top_n", 0, 1 << 20).value_or(0); most > 0) call.top_n = most;
  call.return_documents = f.boolean("return_documents").value_or(true);
  call.activation = read_activation(f);
  call.ignored = f.unread({"user", "max_tokens_per_doc", "max_chunks_per_doc"});
  return call;
}

}  // namespace apus
