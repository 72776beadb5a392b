// SPDX-License-Identifier: Apache-2.0
// What is served at which path, and what a request may be there:
// the router, /openapi.json and docs/serve.md are this table.
#include "serve/anthropic_request.h"
#include "serve/api.h"
#include "serve/numbers_request.h"
#include "serve/ollama_request.h"
#include "serve/openai_request.h"
#include "serve/own_requests.h"
#include "serve/responses_request.h"
#include "serve/speech_request.h"
#include "serve/transcription_request.h"

namespace apus {

namespace {

// What a reader takes.
template <auto read>
Json taken() {
  Json schema;
  if constexpr (requires { read(Json::object(), RequestLimits(), &schema); })
    read(Json::object(), RequestLimits(), &schema);
  else
    read(Json::object(), &schema);
  return schema;
}

Json responses_schema() {
  Json schema;
  read_responses_request(Json::object(), {}, {}, &schema);
  return schema;
}

template <bool counting>
Json messages_schema() {
  Json schema;
  read_messages_request(Json::object(), counting, &schema);
  return schema;
}

Json any_object() { return {{"type", "object"}}; }  // read by engine/answer/answer_wire.h

}  // namespace

const Api::Routes& Api::routes() {
  static const std::set<std::string> get = {"GET", "HEAD"}, post = {"POST"}, both = {"GET", "HEAD", "POST"};
  static const std::set<std::string> kept = {"GET", "HEAD", "DELETE"};
  static const Routes table = {
      {"/", {.methods = get, .handler = &Api::page, .open = true, .about = "A page to chat on"}},
      {"/v1/chat/completions",
       {.methods = post,
        .handler = &Api::chat,
        .request = taken<read_chat_request>,
        .awake = true,
        .about = "OpenAI's chat completions"}},
      {"/v1/completions",
       {.methods = post,
        .handler = &Api::completions,
        .request = taken<read_completion_request>,
        .awake = true,
        .about = "OpenAI's completions of plain text"}},
      {"/v1/responses",
       {.methods = post,
        .handler = &Api::responses,
        .request = responses_schema,
        .awake = true,
        .about = "OpenAI's responses"}},
      {"/v1/responses/{id}",
       {.methods = kept, .handler = &Api::stored_response, .about = "A response that was stored"}},
      {"/v1/audio/speech",
       {.methods = post,
        .handler = &Api::speech,
        .request = taken<read_speech_request>,
        .awake = true,
        .about = "OpenAI's speech: the sound of a text"}},
      {"/v1/audio/transcriptions",
       {.methods = post,
        .handler = &Api::transcriptions,
        .request = taken<read_transcription_form>,
        .awake = true,
        .form = true,
        .about = "OpenAI's transcriptions: what is said in a sound"}},
      {"/v1/embeddings",
       {.methods = post,
        .handler = &Api::embeddings,
        .request = taken<read_embedding_request>,
        .awake = true,
        .about = "OpenAI's embeddings"}},
      {"/classify",
       {.methods = post,
        .handler = &Api::classify,
        .request = taken<read_texts_request>,
        .awake = true,
        .about = "Labels of texts"}},
      {"/pooling",
       {.methods = post,
        .handler = &Api::pooling,
        .request = taken<read_texts_request>,
        .awake = true,
        .about = "Rewards, or a head's plain numbers"}},
      {"/v1/score",
       {.methods = post,
        .handler = &Api::score,
        .request = taken<read_score_request>,
        .awake = true,
        .about = "Scores of pairs of texts"}},
      {"/score",
       {.methods = post,
        .handler = &Api::score,
        .request = taken<read_score_request>,
        .awake = true,
        .about = "The same"}},
      {"/v1/rerank",
       {.methods = post,
        .handler = &Api::rerank,
        .request = taken<read_rerank_request>,
        .awake = true,
        .about = "Documents ranked for a query"}},
      {"/v2/rerank",
       {.methods = post,
        .handler = &Api::rerank,
        .request = taken<read_rerank_request>,
        .awake = true,
        .about = "The same"}},
      {"/rerank",
       {.methods = post,
        .handler = &Api::rerank,
        .request = taken<read_rerank_request>,
        .awake = true,
        .about = "The same"}},
      {"/v1/models", {.methods = get, .handler = &Api::models, .about = "The model and its adapters"}},
      {"/v1/messages",
       {.methods = post,
        .handler = &Api::messages,
        .request = messages_schema<false>,
        .awake = true,
        .about = "Anthropic's messages"}},
      {"/v1/messages/count_tokens",
       {.methods = post,
        .handler = &Api::count_tokens,
        .request = messages_schema<true>,
        .about = "How many tokens messages have"}},
      {"/api/chat",
       {.methods = post,
        .handler = &Api::ollama_chat,
        .request = taken<ollama_chat_request>,
        .awake = true,
        .about = "Ollama's chat"}},
      {"/api/generate",
       {.methods = post,
        .handler = &Api::ollama_generate,
        .request = taken<ollama_generate_request>,
        .awake = true,
        .about = "Ollama's answers to one text"}},
      {"/api/embed",
       {.methods = post,
        .handler = &Api::ollama_embed,
        .request = taken<ollama_embedding_request>,
        .awake = true,
        .about = "Ollama's embeddings"}},
      {"/api/embeddings",
       {.methods = post,
        .handler = &Api::ollama_embed,
        .request = taken<ollama_embedding_request>,
        .awake = true,
        .about = "Their older form"}},
      {"/api/tags", {.methods = get, .handler = &Api::ollama_tags, .about = "Ollama's list of models"}},
      {"/api/ps", {.methods = get, .handler = &Api::ollama_tags, .about = "The same: they are all loaded"}},
      {"/api/show",
       {.methods = post,
        .handler = &Api::ollama_show,
        .request = taken<ollama_show_request>,
        .about = "What a model can do, as Ollama tells it"}},
      {"/api/version",
       {.methods = get, .handler = &Api::ollama_version, .open = true, .about = "The program's version"}},
      {"/api/pull", {.methods = post, .handler = &Api::ollama_store, .about = "Refused: there is no store"}},
      {"/api/push", {.methods = post, .handler = &Api::ollama_store, .about = "The same"}},
      {"/api/create", {.methods = post, .handler = &Api::ollama_store, .about = "The same"}},
      {"/api/copy", {.methods = post, .handler = &Api::ollama_store, .about = "The same"}},
      {"/api/delete", {.methods = {"DELETE"}, .handler = &Api::ollama_store, .about = "The same"}},
      {"/tokenize",
       {.methods = post,
        .handler = &Api::tokenize,
        .request = taken<read_tokenize_request>,
        .about = "Text or messages as token ids"}},
      {"/detokenize",
       {.methods = post,
        .handler = &Api::detokenize,
        .request = taken<read_detokenize_request>,
        .about = "Token ids as text"}},
      {"/infer",
       {.methods = post,
        .handler = &Api::infer,
        .request = taken<read_infer_request>,
        .awake = true,
        .about = "Many chats at once"}},
      {"/health", {.methods = get, .handler = &Api::health, .open = true, .about = "Whether the server lives"}},
      {"/ping", {.methods = both, .handler = &Api::health, .open = true, .about = "Whether the server lives"}},
      {"/version", {.methods = get, .handler = &Api::version, .open = true, .about = "The program's version"}},
      {"/openapi.json", {.methods = get, .handler = &Api::openapi, .open = true, .about = "This list"}},
      {"/metrics", {.methods = get, .handler = &Api::metrics, .about = "Figures for Prometheus"}},
      {"/usage", {.methods = get, .handler = &Api::usage, .about = "Requests and tokens by key (--api_keys)"}},
      {"/v1/load_lora_adapter",
       {.methods = post,
        .handler = &Api::load_adapter,
        .request = taken<read_load_adapter_request>,
        .slow = true,
        .awake = true,
        .about = "Loads an adapter"}},
      {"/v1/unload_lora_adapter",
       {.methods = post,
        .handler = &Api::unload_adapter,
        .request = taken<read_unload_adapter_request>,
        .slow = true,
        .about = "Unloads an adapter"}},
      {"/sleep",
       {.methods = post,
        .handler = &Api::sleep,
        .query = {"level"},
        .slow = true,
        .about = "Frees the device's memory"}},
      {"/wake_up", {.methods = post, .handler = &Api::wake, .slow = true, .about = "Ends the sleep"}},
      {"/is_sleeping", {.methods = get, .handler = &Api::is_sleeping, .about = "Whether the model is asleep"}},
      {"/get_world_size",
       {.methods = get, .handler = &Api::world_size, .about = "apus rollout: processes that answer"}},
      {"/get_model_state_keys",
       {.methods = get, .handler = &Api::state_keys, .about = "apus rollout: the model's parameters"}},
      {"/get_engine_type", {.methods = post, .handler = &Api::engine_type, .about = "apus rollout: what answers"}},
      {"/init_communicator",
       {.methods = post, .handler = &Api::communicator, .about = "apus rollout: refused, weights come over HTTP"}},
      {"/update_named_param", {.methods = post, .handler = &Api::communicator, .about = "apus rollout: the same"}},
      {"/update_adapter_param", {.methods = post, .handler = &Api::communicator, .about = "apus rollout: the same"}},
      {"/close_communicator",
       {.methods = post, .handler = &Api::nothing_to_do, .about = "apus rollout: there is none"}},
      {"/update_flattened_params",
       {.methods = post,
        .handler = &Api::take_weights,
        .query = {"version", "file", "begin"},
        .slow = true,
        .bytes = true,
        .about = "apus rollout: bytes of a file of weights"}},
      {"/update_adapter_flattened_param",
       {.methods = post,
        .handler = &Api::take_weights,
        .query = {"version", "file", "begin"},
        .slow = true,
        .bytes = true,
        .about = "apus rollout: bytes of a file of an adapter"}},
      {"/process_weights_after_loading",
       {.methods = post,
        .handler = &Api::finish_weights,
        .request = taken<read_weights_request>,
        .slow = true,
        .about = "apus rollout: the weights are complete"}},
      {"/reset_prefix_cache",
       {.methods = post, .handler = &Api::nothing_to_do, .about = "apus rollout: done with every new version"}},
      {"/reset_mm_cache",
       {.methods = post, .handler = &Api::nothing_to_do, .about = "apus rollout: done with every new version"}},
      {"/reset_encoder_cache",
       {.methods = post, .handler = &Api::nothing_to_do, .about = "apus rollout: done with every new version"}},
      {"/generate_ids",
       {.methods = post,
        .handler = &Api::generate_ids,
        .request = any_object,
        .awake = true,
        .about = "apus rollout: ids to ids"}},
  };
  return table;
}

}  // namespace apus
