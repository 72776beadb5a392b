// SPDX-License-Identifier: Apache-2.0
#include "serve/api.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "serve/api_error.h"
#include "serve/fields.h"
#include "serve/http_text.h"

namespace apus {

void send_json(Responder& reply, const Json& body, int status) {
  reply.send({.status = status, .body = json_text(body)});
}

Json Api::Exchange::body() const { return parse_foreign(call->body, "the request's body"); }

// Passes on to the client's reply, and writes down how it ended: before the client can know it, so that whoever has an
// answer finds it counted.
class Api::Recorded : public Responder, public std::enable_shared_from_this<Recorded> {
 public:
  Recorded(std::shared_ptr<Api> api, std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> to,
           std::shared_ptr<Serial> serial, std::shared_ptr<AnswerNotes> notes)
      : api_(std::move(api)),
        call_(std::move(call)),
        to_(std::move(to)),
        serial_(std::move(serial)),
        notes_(std::move(notes)) {
    ++api_->active_;
  }
  ~Recorded() override {
    over(500, [] {});
  }

  void send(HttpAnswer answer) override {
    bytes_ = static_cast<int64_t>(answer.body.size());
    api_->spec_.access.allow_origin(*call_, answer);
    over(answer.status, [&] { to_->send(std::move(answer)); });
  }
  void begin(HttpAnswer head) override {
    status_ = head.status;
    api_->spec_.access.allow_origin(*call_, head);
    to_->begin(std::move(head));
  }
  void write(std::string part) override {
    bytes_ += static_cast<int64_t>(part.size());
    to_->write(std::move(part));
  }
  void end() override {
    over(status_, [&] { to_->end(); });
  }
  void on_gone(std::function<void()> f) override {
    to_->on_gone([f = std::move(f), self = weak_from_this()] {
      f();
      // 499: nginx's number for it
      if (const auto alive = self.lock()) alive->serial_->post([alive] { alive->over(499, [] {}); });
    });
  }

 private:
  template <class Tell>
  void over(int status, const Tell& tell) {
    if (std::exchange(over_, true)) return;
    api_->finished(*call_, *notes_, status, bytes_, watch_.seconds());
    tell();
    --api_->active_;
  }
  const std::shared_ptr<Api> api_;
  const std::shared_ptr<const HttpCall> call_;
  const std::shared_ptr<Responder> to_;
  const std::shared_ptr<Serial> serial_;
  const std::shared_ptr<AnswerNotes> notes_;
  const Stopwatch watch_{};
  int status_ = 200;
  int64_t bytes_ = 0;
  bool over_ = false;
};

Api::Api(ApiSpec spec, ServiceSpec service, std::shared_ptr<Workers> workers)
    : spec_(std::move(spec)),
      service_(std::move(service)),
      workers_(std::move(workers)),
      created_(static_cast<int64_t>(std::time(nullptr))) {
  if (!spec_.request_log.empty())
    request_log_ = std::make_unique<LineWriter>(spec_.request_log, LineWriter::Mode::Append);
  if (!spec_.result_path.empty()) results_ = std::make_unique<LineWriter>(spec_.result_path, LineWriter::Mode::Append);
}

Api::~Api() = default;

// What is at /v1/... is there without /v1 too, where nothing else is: clients' base addresses come either way.
const Api::Routes::value_type* Api::find(const HttpCall& call) {
  std::string path = call.path;
  if (path.size() > 1 && path.back() == '/') path.pop_back();
  const bool stored = path.starts_with("/v1/responses/") && path.find('/', 14) == std::string::npos;
  auto it = routes().find(path.starts_with("/v1/models/") ? "/v1/models" : stored ? "/v1/responses/{id}" : path);
  if (it == routes().end()) it = routes().find("/v1" + path);
  return it == routes().end() ? nullptr : &*it;
}

namespace {

HttpAnswer not_allowed(const HttpCall& call, const std::set<std::string>& methods) {
  std::string names;
  for (const auto& m : methods) names += (names.empty() ? "" : ", ") + m;
  const std::string why = str(call.method.substr(0, 16), " is not possible at ", call.path, "; use ", names);
  HttpAnswer answer = error_answer(call, ApiError(405, why));
  answer.headers.emplace_back("Allow", names);
  return answer;
}

// Nothing said, JSON, or what curl -d says of anything.
bool may_be_json(const std::string& content_type) {
  const std::string type = lower(content_type.substr(0, content_type.find_first_of("; \t")));
  return type.empty() || type == "application/json" || type == "application/x-www-form-urlencoded" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

}  // namespace

std::optional<HttpAnswer> Api::admit(const HttpCall& call) {
  const auto refused = [&](HttpAnswer answer) {
    spec_.access.allow_origin(call, answer);
    finished(call, {}, answer.status, static_cast<int64_t>(answer.body.size()), 0);
    return answer;
  };
  try {
    if (auto answer = spec_.access.preflight(call)) return refused(std::move(*answer));
    if (call.bad_path) throw ApiError(400, "The path has a NUL, which no path has.");
    const auto* found = find(call);
    if (!found)
      throw ApiError(
          404,
          str("There is nothing at ", call.path.substr(0, 256), "; the API is at ",
              "/v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings, /v1/models and /v1/messages; ",
              "/openapi.json lists all, and / is a page to chat on"));
    const Route* route = &found->second;
    if (!route->methods.count(call.method)) return refused(not_allowed(call, route->methods));
    if (!route->open) spec_.access.check_key(call);
    if (call.method == "POST" && !route->bytes && !route->form && !may_be_json(call.header("content-type")))
      throw ApiError(415, str("The body must be JSON, but Content-Type says ",
                              call.header("content-type").substr(0, 100), "; send application/json"));
    const auto unavailable = [](const char* why, int seconds) {
      ApiError error(503, why);
      error.retry_after = seconds;
      return error;
    };
    if (draining_) throw unavailable("The server is stopping; it takes no new requests.", 10);
    if (route->awake && asleep_) throw unavailable("The model is asleep; POST /wake_up wakes it.", 30);
    if (route->awake && spec_.access.keys) spec_.access.keys->admit(spec_.access.person(call), clock_.seconds());
    return std::nullopt;
  } catch (const ApiError& e) {
    return refused(error_answer(call, e));
  }
}

HttpAnswer Api::broken(const HttpCall& call, int status, const std::string& why) {
  HttpAnswer answer = error_answer(call, ApiError(status, why));
  finished(call, {}, status, static_cast<int64_t>(answer.body.size()), 0);
  return answer;
}

void Api::serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) {
  const Route& route = find(*call)->second;
  Exchange e;
  e.call = std::move(call);
  e.serial = std::make_shared<Serial>(route.slow ? slow_workers_ : workers_);
  e.notes = std::make_shared<AnswerNotes>();
  e.reply = std::make_shared<Recorded>(shared_from_this(), e.call, std::move(reply), e.serial, e.notes);
  e.serial->post([self = shared_from_this(), e, handler = route.handler] { self->run(handler, e); });
}

void Api::run(Handler handler, const Exchange& e) {
  try {
    (this->*handler)(e);
  } catch (...) {
    e.reply->send(error_answer(*e.call, current_error(*e.call)));
  }
}

ApiError current_error(const HttpCall& call) {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const Error& error) {
    if (http_status(error.at.fault) >= 500) log_error("request ", call.id, ": ", error.what());
    return api_error(error);
  } catch (const std::exception& error) {
    log_error("request ", call.id, ": ", error.what());
    return ApiError(500, "An internal error; the server's log says more.");
  }
}

void Api::finished(const HttpCall& call, const AnswerNotes& notes, int status, int64_t bytes, double seconds) {
  const auto* route = find(call);
  metrics_.request(route ? route->first : "other", status, seconds);
  const bool quiet = route && route->second.open && status == 200;  // probes come every few seconds
  const Usage& u = notes.usage;
  const std::string person = spec_.access.person(call);
  if (u.prompt && !person.empty()) spec_.access.keys->had(person, u.prompt, u.completion, clock_.seconds());
  if (spec_.traces && !quiet) trace(call, notes, status, seconds, person);
  std::string made;
  if (u.prompt) made = str(" ", notes.model, " ", u.prompt, "+", u.completion, " tokens ", notes.finish);
  if (spec_.verbose && !quiet)
    log_info(call.peer, " ", call.method, " ", call.path, " ", status, " ", bytes, " bytes ", duration_text(seconds),
             made, person.empty() ? "" : " key=" + person, " id=", call.id);
  if (!request_log_) return;
  Json line = {{"time", std::time(nullptr)}, {"id", call.id},    {"peer", call.peer}, {"method", call.method},
               {"path", call.path},          {"status", status}, {"bytes", bytes},    {"seconds", seconds}};
  if (!person.empty()) line["key"] = person;
  if (u.prompt) {
    line.update({{"model", notes.model},
                 {"prompt_tokens", u.prompt},
                 {"completion_tokens", u.completion},
                 {"cached_tokens", u.cached},
                 {"finish", notes.finish}});
    if (notes.first_token >= 0) line["first_token_seconds"] = notes.first_token;
  }
  const std::lock_guard lock(log_mutex_);
  request_log_->write(json_text(line));
  request_log_->flush();
}

void Api::trace(const HttpCall& call, const AnswerNotes& notes, int status, double seconds, const std::string& person) {
  using std::chrono::system_clock;
  const double now = std::chrono::duration<double>(system_clock::now().time_since_epoch()).count();
  RequestSpan span{.method = call.method,
                   .path = call.path.substr(0, 256),
                   .id = call.id,
                   .model = notes.model,
                   .finish = notes.finish,
                   .key = person,
                   .status = status,
                   .begin = now - seconds,
                   .end = now,
                   .prompt_tokens = notes.usage.prompt,
                   .completion_tokens = notes.usage.completion,
                   .cached_tokens = notes.usage.cached,
                   .first_token = notes.first_token};
  place_in_trace(call.header("traceparent"), span);
  spec_.traces->add(std::move(span));
}

void Api::stop() {
  ending_ = true;
  slow_workers_->stop(), voices_->stop();
}

void Api::stop_all() {
  ending_ = true;
  std::vector<std::shared_ptr<AnswerStream>> alive;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& entry : running_)
      if (auto stream = entry.second.lock()) alive.push_back(std::move(stream));
  }
  for (const auto& stream : alive) stream->stop("The server is stopping; this answer was not finished.");
}

void Api::answer(const Exchange& e, Service::Prepared prepared, bool streamed, const Wording& wording,
                 WholeSink whole) {
  AnswerForm& form = prepared.form;
  form.head.id = random_id(wording.id_prefix, wording.id_letters);
  auto writer = streamed ? wording.streamed(form, e.reply) : wording.whole(form, std::move(whole));
  start(e, std::move(prepared), std::move(writer));
}

void Api::start(const Exchange& e, Service::Prepared prepared, std::unique_ptr<AnswerWriter> writer) {
  e.notes->model = prepared.form.head.model;
  e.notes->usage.prompt = prepared.stream.prompt_tokens;
  // The registry forgets it with its last owner: the engine, the reply, or the workers.
  std::shared_ptr<AnswerStream> stream(
      new AnswerStream(std::move(prepared.stream), std::move(writer), e.serial, e.notes, &metrics_),
      [self = shared_from_this()](AnswerStream* gone) {
        {
          const std::lock_guard lock(self->mutex_);
          self->running_.erase(gone);
        }
        delete gone;
      });
  {
    const std::lock_guard lock(mutex_);
    running_[stream.get()] = stream;
  }
  e.reply->on_gone([weak = std::weak_ptr(stream)] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  try {
    stream->start();
  } catch (const Error&) {
    service_.check_model(e.notes->model);  // its adapter may have gone since it was asked for: 404
    throw;
  }
}

void Api::note_ignored(const Exchange& e, const std::vector<std::string>& fields) const {
  constexpr size_t kShown = 8;
  if (!spec_.verbose || fields.empty()) return;
  std::string names;
  for (size_t i = 0; i < std::min(fields.size(), kShown); ++i)
    names += (i ? ", " : "") + json_text(Json(fields[i])).substr(0, 64);
  const char* const more = fields.size() > kShown ? ", ..." : "";
  log_warning("request ", e.call->id, ": fields without effect here: ", names, more);
}

WholeSink Api::to_reply(const Exchange& e) {
  return {[reply = e.reply](Json answer) { send_json(*reply, answer); },
          [call = e.call, reply = e.reply](const ApiError& error) { reply->send(error_answer(*call, error)); }};
}

}  // namespace apus
