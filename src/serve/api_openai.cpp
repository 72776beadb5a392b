// SPDX-License-Identifier: Apache-2.0
// The handlers of OpenAI's endpoints, and of /infer/, which answers many chats at once.
#include <nlohmann/json.hpp>

#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/embedding.h"
#include "serve/fields.h"
#include "serve/openai_request.h"

namespace apus {

namespace {
constexpr size_t kMostRows = 2048;  // of one /infer/

// Appends what was answered, as `swift deploy --result_path` does.
Json result_line(const Json& response, const Json& request) {
  Json config = request;
  Json asked = Json::object();
  for (const char* key : {"messages", "tools", "prompt"})
    if (config.contains(key)) asked[key] = config[key], config.erase(key);
  return {{"response", response}, {"infer_request", asked}, {"generation_config", config}};
}
}  // namespace

void Api::chat(const Exchange& e) {
  auto body = std::make_shared<Json>(e.body());
  const ChatCall call = read_chat_request(*body, {.max_logprobs = service_.spec().max_logprobs});
  note_ignored(e, call);
  auto prepared = service_.prepare(call);
  AnswerForm& form = prepared.form;
  form.head.id = random_id("chatcmpl-", 32);
  auto writer = call.stream ? streamed_chat(form, e.reply) : whole_chat(form, keeping(to_reply(e), body));
  generate(e, std::move(prepared), std::move(writer));
}

void Api::completions(const Exchange& e) {
  auto body = std::make_shared<Json>(e.body());
  const CompletionCall call = read_completion_request(*body, {.max_logprobs = service_.spec().max_logprobs});
  note_ignored(e, call);
  auto prepared = service_.prepare(call);
  AnswerForm& form = prepared.form;
  form.head.id = random_id("cmpl-", 32);
  auto writer = call.stream ? streamed_completion(form, e.reply) : whole_completion(form, keeping(to_reply(e), body));
  generate(e, std::move(prepared), std::move(writer));
}

// The whole answer also goes to --result_path.
WholeSink Api::keeping(WholeSink sink, std::shared_ptr<const Json> request) {
  if (!results_) return sink;
  return {[self = shared_from_this(), done = std::move(sink.done), request](Json answer) {
            {
              const std::lock_guard lock(self->log_mutex_);
              self->results_->write(json_text(result_line(answer, *request)));
              self->results_->flush();
            }
            done(std::move(answer));
          },
          std::move(sink.failed)};
}

void Api::embeddings(const Exchange& e) {
  const EmbeddingCall call = read_embedding_request(e.body());
  EmbeddingForm form{.model = call.model.empty() ? service_.spec().model_name : call.model,
                     .base64 = call.base64,
                     .dimensions = call.dimensions};
  const auto job = std::make_shared<EmbeddingJob>(service_.spec().engine, std::move(form), e.serial, to_reply(e));
  e.notes->model = service_.spec().model_name;
  e.reply->on_gone([weak = std::weak_ptr(job)] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  job->start(service_.prepare(call));
}

void Api::models(const Exchange& e) {
  Json list = Json::array();
  for (const auto& name : service_.models()) {
    Json model = {{"id", name},
                  {"object", "model"},
                  {"created", created_},
                  {"owned_by", service_.spec().owned_by},
                  {"max_model_len", service_.spec().engine->max_model_len()}};
    if (name != service_.spec().model_name) model["parent"] = service_.spec().model_name;
    if (e.call->path == "/v1/models/" + name) return send_json(*e.reply, model);
    list.push_back(std::move(model));
  }
  if (e.call->path.size() > 11)
    throw ApiError(404, str("The model '", e.call->path.substr(11, 256), "' does not exist"), "model",
                   "model_not_found");
  send_json(*e.reply, {{"object", "list"}, {"data", std::move(list)}});
}

void Api::tokenize(const Exchange& e) {
  const Json body = e.body();
  const Fields f(body);
  service_.check_model(f.text("model").value_or(""));
  std::vector<int32_t> ids;
  if (f.find("messages"))
    ids = service_.chat_ids(read_chat_request(body, {.max_logprobs = service_.spec().max_logprobs}));
  else
    ids = service_.encode(f.needed_text("prompt"), f.boolean("add_special_tokens").value_or(true), "prompt");
  Json out = {{"count", ids.size()},
              {"max_model_len", service_.spec().engine->max_model_len()},
              {"tokens", ids},
              {"token_strs", nullptr}};
  if (f.boolean("return_token_strs").value_or(false)) {
    out["token_strs"] = Json::array();
    for (const int32_t id : ids) out["token_strs"].push_back(service_.spec().tokenizer->piece(id));
  }
  send_json(*e.reply, out);
}

void Api::detokenize(const Exchange& e) {
  const Json body = e.body();
  const Fields f(body);
  if (!f.find("tokens")) refuse("tokens", "'tokens' is missing: it must be a list of token ids");
  const auto ids = f.ids("tokens", 1 << 22);
  service_.check_ids(ids, "tokens");
  send_json(*e.reply, {{"prompt", service_.spec().tokenizer->decode(ids)}});
}

void Api::health(const Exchange& e) { e.reply->send({.status = 200, .content_type = "text/plain"}); }

void Api::metrics(const Exchange& e) {
  e.reply->send({.body = metrics_.prometheus(service_.spec().engine->stats(), active()),
                 .content_type = "text/plain; version=0.0.4"});
}

namespace {
// The answers of one /infer/ in the order of its rows; they arrive one after the other, on its Serial.
struct Rows {
  std::vector<Json> answers;
  size_t missing = 0;
  bool failed = false;
};
}  // namespace

void Api::infer(const Exchange& e) {
  const Json body = e.body();
  const Fields f(body);
  const Json* rows = f.list("infer_requests");
  if (!rows || rows->empty())
    refuse("infer_requests", "'infer_requests' is missing: it must be a list of {\"messages\": [...]}");
  if (rows->size() > kMostRows)
    refuse("infer_requests", "'infer_requests' has ", rows->size(), " entries, at most ", kMostRows, " are possible");
  const Json* config = f.object("request_config");
  std::vector<Service::Prepared> prepared;
  for (size_t i = 0; i < rows->size(); ++i) {
    const Fields row((*rows)[i], str("infer_requests[", i, "]."));
    Json request = config ? *config : Json::object();
    if (const auto model = f.text("model")) request["model"] = *model;
    request.update((*rows)[i]);
    const ChatCall call = read_chat_request(request, {.max_logprobs = service_.spec().max_logprobs});
    if (call.stream) refuse("request_config.stream", "/infer/ answers when all is done; /v1/chat/completions streams");
    prepared.push_back(service_.prepare(call));
    prepared.back().form.head.id = random_id("chatcmpl-", 32);
  }
  const auto all = std::make_shared<Rows>();
  all->answers.resize(rows->size());
  all->missing = rows->size();
  const WholeSink sink = to_reply(e);
  for (size_t i = 0; i < prepared.size(); ++i) {
    WholeSink one{[all, i, sink](Json answer) {
                    all->answers[i] = std::move(answer);
                    if (--all->missing == 0 && !all->failed) sink.done(Json(all->answers));
                  },
                  [all, sink](const ApiError& error) {
                    if (!std::exchange(all->failed, true)) sink.failed(error);
                  }};
    auto writer = whole_chat(prepared[i].form, std::move(one));
    generate(e, std::move(prepared[i]), std::move(writer));
  }
}

}  // namespace apus
