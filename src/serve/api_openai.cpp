// SPDX-License-Identifier: Apache-2.0
// The handlers of OpenAI's endpoints, and of /infer/, which answers many chats at once.
#include <nlohmann/json.hpp>
#include <optional>

#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/openai_request.h"
#include "serve/own_requests.h"
#include "serve/rollout_door.h"

namespace apus {

namespace {
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
  check_talks();
  auto body = std::make_shared<Json>(e.body());
  const ChatCall call = read_chat_request(*body, {.max_logprobs = service_.spec().max_logprobs});
  note_ignored(e, call.ignored);
  Service::Prepared prepared = service_.prepare(call);
  WholeSink sink = keeping(to_reply(e), body);
  if (call.spoken) sink = speaking(e, call, prepared, std::move(sink));
  answer(e, std::move(prepared), call.stream, {"chatcmpl-", 32, streamed_chat, whole_chat}, std::move(sink));
}

void Api::completions(const Exchange& e) {
  check_talks();
  auto body = std::make_shared<Json>(e.body());
  const CompletionCall call = read_completion_request(*body, {.max_logprobs = service_.spec().max_logprobs});
  note_ignored(e, call.ignored);
  answer(e, service_.prepare(call), call.stream, {"cmpl-", 32, streamed_completion, whole_completion},
         keeping(to_reply(e), body));
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

void Api::models(const Exchange& e) {
  Json list = Json::array();
  for (const auto& name : service_.models()) {
    Json model = {{"id", name},
                  {"object", "model"},
                  {"created", created_},
                  {"owned_by", service_.spec().owned_by},
                  {"max_model_len", service_.spec().engine->max_model_len()},
                  {"sampling", service_.usual_sampling()}};
    if (service_.spec().media) model["takes_media"] = true;  // our page offers to show pictures
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
  const TokenizeCall call = read_tokenize_request(body);
  service_.check_model(call.model);
  const auto ids = call.chat
                       ? service_.chat_ids(read_chat_request(body, {.max_logprobs = service_.spec().max_logprobs}))
                       : service_.encode(call.prompt, call.add_special, "prompt");
  Json out = {{"count", ids.size()},
              {"max_model_len", service_.spec().engine->max_model_len()},
              {"tokens", ids},
              {"token_strs", nullptr}};
  if (call.pieces) {
    out["token_strs"] = Json::array();
    for (const int32_t id : ids) out["token_strs"].push_back(service_.spec().tokenizer->piece(id));
  }
  send_json(*e.reply, out);
}

void Api::detokenize(const Exchange& e) {
  const auto ids = read_detokenize_request(e.body());
  service_.check_ids(ids, "tokens", /*media=*/true);
  const std::string text = service_.spec().tokenizer->decode(ids);
  send_json(*e.reply, {{"prompt", text}, {"content", text}});  // vLLM's name of it, and llama-server's
}

void Api::health(const Exchange& e) { e.reply->send({.status = 200, .content_type = "text/plain"}); }

void Api::metrics(const Exchange& e) {
  const KeyBook* keys = spec_.access.keys.get();
  e.reply->send(
      {.body = metrics_.prometheus(service_.spec().engine->stats(), active()) + (keys ? keys->prometheus() : ""),
       .content_type = "text/plain; version=0.0.4"});
}

namespace {

// The answers of one /infer/ in the order of its rows; they arrive one after the other, on its Serial. What went wrong
// with a row stands in its place; when that is so for all of them, the request itself has failed.
class Rows {
 public:
  Rows(size_t rows, WholeSink sink, std::shared_ptr<AnswerNotes> notes)
      : answers_(rows), missing_(rows), sink_(std::move(sink)), notes_(std::move(notes)) {}

  void answered(size_t row, Json answer, const AnswerNotes& notes) {
    AnswerNotes& all = *notes_;
    all.model = notes.model;
    all.finish = notes.finish;
    all.usage.prompt += notes.usage.prompt;
    all.usage.completion += notes.usage.completion;
    all.usage.cached += notes.usage.cached;
    all.usage.reasoning += notes.usage.reasoning;
    if (all.first_token < 0) all.first_token = notes.first_token;
    put(row, std::move(answer));
  }
  void failed(size_t row, const ApiError& error) {
    ++failed_;
    if (!error_ || error.status > error_->status) error_ = error;
    put(row, openai_error(error));
  }

 private:
  void put(size_t row, Json answer) {
    answers_[row] = std::move(answer);
    if (--missing_ > 0) return;
    if (failed_ == answers_.size())
      sink_.failed(*error_);
    else
      sink_.done(Json(answers_));
  }

  std::vector<Json> answers_;
  size_t missing_, failed_ = 0;
  const WholeSink sink_;
  const std::shared_ptr<AnswerNotes> notes_;
  std::optional<ApiError> error_;  // the gravest
};

}  // namespace

void Api::infer(const Exchange& e) {
  check_talks();
  const InferCall call = read_infer_request(e.body());
  if (service_.spec().door && service_.spec().door->spec().environment.several_turns()) {
    std::make_shared<Serial>(slow_workers_)->post([self = shared_from_this(), e, call] {
      try {
        self->play_rows(e, call.rows, call.config);
      } catch (...) {
        e.reply->send(error_answer(*e.call, current_error(*e.call)));
      }
    });
    return;
  }
  const auto all = std::make_shared<Rows>(call.rows.size(), to_reply(e), e.notes);
  struct Ready {
    size_t row;
    std::shared_ptr<const Json> request;
    Service::Prepared prepared;
  };
  // All of them before the first begins: the queue is judged by what others brought.
  std::vector<Ready> ready;
  for (size_t i = 0; i < call.rows.size(); ++i) {
    try {
      const Fields row(call.rows[i], str("infer_requests[", i, "]."));
      Json request = call.config;
      if (call.model) request["model"] = *call.model;
      request.update(call.rows[i]);
      ready.push_back({i, std::make_shared<const Json>(request), prepare_row(e, request)});
    } catch (...) {
      all->failed(i, current_error(*e.call));
    }
  }
  for (auto& r : ready) {
    Exchange one = e;
    one.notes = std::make_shared<AnswerNotes>();
    const size_t i = r.row;
    WholeSink sink{[all, i, notes = one.notes](Json answer) { all->answered(i, std::move(answer), *notes); },
                   [all, i](const ApiError& error) { all->failed(i, error); }};
    auto writer = whole_chat(r.prepared.form, keeping(std::move(sink), r.request));
    try {
      start(one, std::move(r.prepared), std::move(writer));
    } catch (...) {
      all->failed(i, current_error(*e.call));
    }
  }
}

Service::Prepared Api::prepare_row(const Exchange& e, const Json& request) const {
  const ChatCall call = read_chat_request(request, {.max_logprobs = service_.spec().max_logprobs});
  if (call.stream) refuse("stream", "/infer/ answers when all is done; /v1/chat/completions streams");
  if (call.spoken) refuse("modalities", "/infer/ answers in text; /v1/chat/completions speaks");
  note_ignored(e, call.ignored);
  auto prepared = service_.prepare(call);
  prepared.form.head.id = random_id("chatcmpl-", 32);
  return prepared;
}

}  // namespace apus
