// SPDX-License-Identifier: Apache-2.0
// The handlers of Ollama's endpoints. What manages Ollama's own store of models has no place here.
#include <nlohmann/json.hpp>

#include "serve/api.h"
#include "serve/fields.h"
#include "serve/ollama_answer.h"
#include "serve/ollama_request.h"
#include "serve/openai_request.h"

namespace apus {

void Api::ollama_chat(const Exchange& e) {
  check_talks();
  const Json request = ollama_chat_request(e.body());
  if (request["messages"].empty()) return ollama_loaded(e, request, "message");
  const ChatCall call = read_chat_request(request, {.max_logprobs = service_.spec().max_logprobs});
  answer(e, service_.prepare(call), call.stream, {"ollama-", 32, streamed_ollama_chat, whole_ollama_chat}, to_reply(e));
}

void Api::ollama_generate(const Exchange& e) {
  check_talks();
  const Json body = e.body();
  const Fields f(body);
  const Wording wording = {"ollama-", 32, streamed_ollama_text, whole_ollama_text};
  const RequestLimits limits = {.max_logprobs = service_.spec().max_logprobs};
  if (f.text("prompt").value_or("").empty()) return ollama_loaded(e, ollama_generate_request(body), "response");
  if (f.boolean("raw").value_or(false) || !f.text("suffix").value_or("").empty()) {
    const CompletionCall call = read_completion_request(ollama_completion_request(body), limits);
    return answer(e, service_.prepare(call), call.stream, wording, to_reply(e));
  }
  const ChatCall call = read_chat_request(ollama_generate_request(body), limits);
  answer(e, service_.prepare(call), call.stream, wording, to_reply(e));
}

// A request without a text asks for the model to be there, or to go.
void Api::ollama_loaded(const Exchange& e, const Json& request, const char* key) {
  const std::string model = request.value("model", "");
  service_.check_model(model);
  send_json(*e.reply, {{"model", service_.named(model)},
                       {"created_at", ollama_time(std::time(nullptr))},
                       {key, std::string(key) == "message" ? Json{{"role", "assistant"}, {"content", ""}} : Json("")},
                       {"done", true},
                       {"done_reason", "load"}});
}

void Api::ollama_embed(const Exchange& e) {
  check_task(service_.spec().task.gives_vectors(), "gives no vectors");
  const bool one = e.call->path.starts_with("/api/embeddings");  // the older form: one text, one vector
  const EmbeddingCall call = read_embedding_request(ollama_embedding_request(e.body()));
  const EmbeddingForm form{.model = service_.named(call.model), .base64 = false, .dimensions = call.dimensions};
  start_numbers(e, service_.prepare(call), [form, one](TextNumbers numbers) -> Json {
    Json vectors = Json::array();
    for (auto& vector : numbers.of_text)
      vectors.push_back(embedding_json(std::move(vector), form, vectors.size())["embedding"]);
    if (one) return {{"embedding", vectors.empty() ? Json::array() : vectors[0]}};
    return {{"model", form.model}, {"embeddings", std::move(vectors)}, {"prompt_eval_count", numbers.tokens}};
  });
}

void Api::ollama_tags(const Exchange& e) {
  Json models = Json::array();
  for (const auto& name : service_.models()) {
    models.push_back(ollama_entry(name, created_, 0));
    if (e.call->path.starts_with("/api/ps")) models.back()["expires_at"] = ollama_time(created_ + (int64_t{1} << 31));
  }
  send_json(*e.reply, {{"models", std::move(models)}});
}

void Api::ollama_show(const Exchange& e) {
  const ServiceSpec& spec = service_.spec();
  const std::string model = ollama_show_request(e.body());
  service_.check_model(model);
  Json capabilities = Json::array();
  if (spec.task.talks()) capabilities.push_back("completion");
  if (!spec.task.talks()) capabilities.push_back("embedding");
  if (spec.media) capabilities.push_back("vision");
  if (spec.tool_format != ToolFormat::None) capabilities.push_back("tools");
  if (spec.reasoning) capabilities.push_back("thinking");
  Json out = ollama_entry(service_.named(model), created_, 0);
  out.update({{"modelfile", ""},
              {"parameters", ""},
              {"template", spec.chat ? spec.chat->template_text(false) : ""},
              {"model_info", {{"general.context_length", spec.engine->max_model_len()}}},
              {"capabilities", std::move(capabilities)}});
  send_json(*e.reply, out);
}

void Api::ollama_version(const Exchange& e) { send_json(*e.reply, {{"version", APUS_VERSION}}); }

void Api::ollama_store(const Exchange& e) {
  throw ApiError(501, str(e.call->path,
                          " manages Ollama's own store of models, and there is none here: this server "
                          "answers with the models that it was started with (apus deploy --model, --models)"));
}

}  // namespace apus
