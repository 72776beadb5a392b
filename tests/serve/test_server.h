// SPDX-License-Identifier: Apache-2.0
// A served model for tests: scripted answers, the bundled tokenizer, real handlers; with or without sockets.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/assets.h"
#include "engine/answer/chat.h"
#include "serve/api.h"
#include "tests/serve/fake_engine.h"

namespace apus::test {

inline const char* const kChatTemplate =
    "{%- if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<tool_call><|im_end|>\n{% "
    "endif %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}{{ "
    "c.function.arguments.items() | list }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking "
    "%}<think>\n{% endif %}{% endif %}";

struct Served {
  std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));
  const int32_t end = *tokenizer->id("<|im_end|>");
  std::string answer = "Hello, world!";  // what the model says to everybody
  FakeEngine engine{[this](const EngineRequest&) {
    std::vector<int32_t> ids = tokenizer->encode(answer);
    ids.push_back(end);
    return ids;
  }};
  Chat chat{std::filesystem::temp_directory_path(), tokenizer, {.chat_template = kChatTemplate}};
  std::shared_ptr<Workers> workers = std::make_shared<Workers>(2);

  ServiceSpec service() {
    ServiceSpec s;
    s.model_name = "tiny";
    s.engine = &engine;
    s.chat = &chat;
    s.tokenizer = tokenizer;
    s.stop_ids = {end};
    s.tool_format = ToolFormat::Hermes;
    s.reasoning = true;
    s.max_waiting = 10;
    return s;
  }
  std::shared_ptr<Api> api(ApiSpec spec = {.verbose = false}) {
    return std::make_shared<Api>(std::move(spec), service(), workers);
  }
  ~Served() { workers->stop(); }
};

// A reply that waits for its end.
class Waiting : public Responder {
 public:
  void send(HttpAnswer answer) override {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(answer);
    done();
  }
  void begin(HttpAnswer head) override {
    const std::lock_guard lock(mutex_);
    answer_ = std::move(head);
  }
  void write(std::string part) override {
    const std::lock_guard lock(mutex_);
    answer_.body += part;
    parts_.push_back(std::move(part));
  }
  void end() override {
    const std::lock_guard lock(mutex_);
    done();
  }
  void on_gone(std::function<void()> f) override {
    const std::lock_guard lock(mutex_);
    gone_.push_back(std::move(f));
  }
  void go_away() {
    for (const auto& f : gone_) f();
  }
  HttpAnswer wait() {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, std::chrono::seconds(120), [&] { return over_; }))
      return {.status = 0, .body = "no answer came"};
    return answer_;
  }

 private:
  void done() {
    over_ = true;
    ended_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable ended_;
  HttpAnswer answer_;
  std::vector<std::string> parts_;
  std::vector<std::function<void()>> gone_;
  bool over_ = false;
};

inline HttpAnswer ask(Api& api, const std::string& method, const std::string& path, const std::string& body = "",
                      std::map<std::string, std::string> headers = {}, const std::string& query = "") {
  auto call = std::make_shared<HttpCall>();
  call->id = "test";
  call->method = method;
  call->path = path;
  call->query = query;
  call->body = body;
  call->headers = std::move(headers);
  if (auto refused = api.admit(*call)) return *refused;
  const auto reply = std::make_shared<Waiting>();
  api.serve(call, reply);
  return reply->wait();
}

inline Json post(Api& api, const std::string& path, const Json& body, int status = 200) {
  const HttpAnswer answer = ask(api, "POST", path, json_text(body));
  if (answer.status != status) throw std::runtime_error(str(path, ": status ", answer.status, " ", answer.body));
  return Json::parse(answer.body);
}

// A chat of one question, with what else its request says.
inline Json question(const Json& more = Json::object(), const std::string& text = "hi") {
  Json body = {{"model", "tiny"}, {"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
  body.update(more);
  return body;
}

// The events of a stream, without the last one, which must be [DONE] (OpenAI) or message_stop (Anthropic).
inline std::vector<Json> events(const std::string& body) {
  std::vector<Json> out;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    const std::string data = body.substr(at + 6, end - at - 6);
    at = end;
    out.push_back(data == "[DONE]" ? Json("[DONE]") : Json::parse(data));
  }
  return out;
}

// What the constraint of a request lets through.
inline bool fits(const Served& s, const EngineRequest& request, const std::string& answer) {
  const auto constraint = request.constraint->clone();
  std::vector<uint64_t> mask(static_cast<size_t>(s.tokenizer->vocab_size()) / 64 + 1);
  auto ids = s.tokenizer->encode(answer);
  ids.push_back(s.end);
  for (const int32_t id : ids) {
    constraint->allowed(mask);
    if (!(mask[static_cast<size_t>(id) / 64] >> (id % 64) & 1)) return false;
    if (id != s.end) constraint->accept(id);
  }
  return true;
}

}  // namespace apus::test
