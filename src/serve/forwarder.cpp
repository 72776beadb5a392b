// SPDX-License-Identifier: Apache-2.0
#include "serve/forwarder.h"

#include <curl/curl.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "serve/http_text.h"

namespace apus {

namespace {

// One request on its way. Touched by the transfers' thread only, but for `gone`.
struct Transfer {
  std::shared_ptr<const HttpCall> call;
  std::shared_ptr<Responder> reply;
  std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
  CURL* curl = nullptr;
  curl_slist* headers = nullptr;
  HttpAnswer head;
  bool begun = false;
  std::string event;  // of a stream: what has come of the next one
  size_t server = 0;
  int64_t bytes = 0;
  const Stopwatch watch{};

  ~Transfer() {
    curl_slist_free_all(headers);
    if (curl) curl_easy_cleanup(curl);
  }
  void begin() {
    if (std::exchange(begun, true)) return;
    take_status();
    reply->begin(head);
  }
  bool streams() const { return head.content_type.starts_with("text/event-stream"); }
  // Events of a stream go on as whole ones: where it breaks off, the rest must not be half of one.
  std::string ready_part(std::string part) {
    if (!streams()) return part;
    event += part;
    const size_t end = event.rfind("\n\n");
    if (end == std::string::npos) return "";
    std::string whole = event.substr(0, end + 2);
    event.erase(0, end + 2);
    return whole;
  }
  void take_status() {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    head.status = static_cast<int>(status);
  }
};

size_t on_header(char* data, size_t size, size_t count, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  const std::string line(data, size * count);
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return size * count;
  std::string name = lower(line.substr(0, colon)),
              value = line.substr(std::min(line.find_first_not_of(' ', colon + 1), line.size()));
  while (!value.empty() && (value.back() == '\r' || value.back() == '\n')) value.pop_back();
  if (name == "content-type") t.head.content_type = value;
  if (name == "retry-after") t.head.headers.emplace_back("Retry-After", value);
  return size * count;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  auto& t = *static_cast<Transfer*>(user);
  if (*t.gone) return 0;
  t.begin();
  t.bytes += static_cast<int64_t>(size * count);
  if (std::string part = t.ready_part({data, size * count}); !part.empty()) t.reply->write(std::move(part));
  return size * count;
}

// The end of a stream whose server is lost, in the form of its API.
std::string broken_off(const HttpCall& call, const ApiError& error) {
  const std::string data = "data: " + error_answer(call, error).body + "\n\n";
  return call.path.starts_with("/v1/messages") ? "event: error\n" + data : data + "data: [DONE]\n\n";
}

}  // namespace

namespace {
// What stands there; nothing: it does not answer with 200.
std::optional<std::string> page_at(const std::string& url, const std::string& key) {
  CURL* curl = curl_easy_init();
  std::string page;
  curl_slist* const headers =
      key.empty() ? nullptr : curl_slist_append(nullptr, ("Authorization: Bearer " + key).c_str());
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &page);
  curl_easy_setopt(
      curl, CURLOPT_WRITEFUNCTION, +[](char* data, size_t size, size_t count, void* to) {
        static_cast<std::string*>(to)->append(data, size * count);
        return size * count;
      });
  long status = 0;
  if (curl_easy_perform(curl) == CURLE_OK) curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_cleanup(curl);
  curl_slist_free_all(headers);
  return status == 200 ? std::optional(page) : std::nullopt;
}
}  // namespace

bool answers_health(const std::string& base_url) { return page_at(base_url + "/health", "").has_value(); }

std::vector<std::string> models_at(const std::string& base_url, const std::string& key) {
  const Json list = Json::parse(page_at(base_url + "/v1/models", key).value_or("{}"), nullptr, false);
  std::vector<std::string> names;
  for (const Json& model : list.is_object() ? list.value("data", Json::array()) : Json::array())
    names.push_back(model.value("id", ""));
  return names;
}

// All transfers on one thread, by libcurl's multi interface.
struct Forwarder::Transfers {
  std::vector<std::string> base_urls;  // empty: that copy is lost; guarded by `mutex`
  const size_t copies = base_urls.size();
  std::vector<int64_t> busy = std::vector<int64_t>(copies);  // requests that each answers
  const bool keeps_key;                                      // the client's key is the other server's business
  const bool verbose;
  CURLM* const multi = curl_multi_init();
  std::mutex mutex;
  std::vector<std::unique_ptr<Transfer>> arrived;
  std::list<std::unique_ptr<Transfer>> running;
  std::atomic<int64_t> active{0};
  std::atomic<bool> stopping{false};
  std::thread thread;

  Transfers(std::vector<std::string> urls, bool key, bool verbose)
      : base_urls(std::move(urls)), keeps_key(key), verbose(verbose), thread([this] { run(); }) {}
  ~Transfers() {
    stopping = true;
    curl_multi_wakeup(multi);
    thread.join();
    for (auto& t : running) curl_multi_remove_handle(multi, t->curl);
    running.clear();
    curl_multi_cleanup(multi);
  }

  void run() {
    while (!stopping) {
      std::vector<std::unique_ptr<Transfer>> fresh;
      {
        const std::lock_guard lock(mutex);
        fresh.swap(arrived);
      }
      for (auto& t : fresh) start(std::move(t));
      int still = 0;
      curl_multi_perform(multi, &still);
      int left = 0;
      while (const CURLMsg* message = curl_multi_info_read(multi, &left))
        if (message->msg == CURLMSG_DONE) finish(message->easy_handle, message->data.result);
      running.remove_if([this](const std::unique_ptr<Transfer>& t) {
        if (!*t->gone) return false;
        over(*t, 499);
        return true;
      });
      curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
  }
  // Responses are kept by the server that made them: all go to the first. Nothing: nobody is there.
  std::optional<size_t> server_for(const HttpCall& call) {
    const std::lock_guard lock(mutex);
    std::optional<size_t> best;
    for (size_t i = 0; i < (call.path.starts_with("/v1/responses") ? 1 : copies); ++i)
      if (!base_urls[i].empty() && (!best || busy[i] < busy[*best])) best = i;
    return best;
  }
  std::string url_of(size_t server) {
    const std::lock_guard lock(mutex);
    return base_urls[server];
  }
  // Of a copy it is no fault of the request, and another try finds another copy, or this one again.
  ApiError lost(const char* why) const {
    return copies > 1 ? ApiError(503, str("The copy of the model that answered is lost (", why, "); ask again."))
                      : ApiError(502, str("The server behind this one does not answer: ", why));
  }
  HttpAnswer lost_answer(const HttpCall& call, const char* why) const {
    HttpAnswer answer = error_answer(call, lost(why));
    if (copies > 1) answer.headers.emplace_back("Retry-After", "1");
    return answer;
  }
  void start(std::unique_ptr<Transfer> t) {
    const auto server = server_for(*t->call);
    if (!server) {
      t->reply->send(lost_answer(*t->call, "none is running at the moment"));
      --active;
      return;
    }
    t->curl = curl_easy_init();
    t->server = *server;
    ++busy[t->server];
    curl_easy_setopt(t->curl, CURLOPT_URL, (url_of(t->server) + t->call->target).c_str());
    curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, 10L);
    if (t->call->method == "POST") {
      curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t->call->body.size()));
      curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, t->call->body.c_str());
    } else if (t->call->method == "HEAD") {
      curl_easy_setopt(t->curl, CURLOPT_NOBODY, 1L);
    }
    const auto add = [&](const std::string& line) { t->headers = curl_slist_append(t->headers, line.c_str()); };
    for (const char* name : {"content-type", "accept", "anthropic-version"})
      if (const std::string value = t->call->header(name); !value.empty()) add(std::string(name) + ": " + value);
    if (keeps_key)
      for (const char* name : {"authorization", "x-api-key"})
        if (const std::string value = t->call->header(name); !value.empty()) add(std::string(name) + ": " + value);
    add("X-Request-Id: " + t->call->id);
    add("Expect:");
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t.get());
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t.get());
    curl_multi_add_handle(multi, t->curl);
    running.push_back(std::move(t));
  }
  void finish(CURL* curl, CURLcode result) {
    running.remove_if([&](const std::unique_ptr<Transfer>& t) {
      if (t->curl != curl) return false;
      if (result != CURLE_OK && !t->begun) {
        HttpAnswer answer = lost_answer(*t->call, curl_easy_strerror(result));
        const int status = answer.status;
        t->reply->send(std::move(answer));
        over(*t, status);
        return true;
      }
      if (t->call->method == "HEAD") {
        t->take_status();
        t->reply->send(t->head);
        over(*t, t->head.status);
        return true;
      }
      t->begin();
      if (result == CURLE_OK && !t->event.empty()) t->reply->write(std::move(t->event));
      if (result != CURLE_OK && t->streams()) t->reply->write(broken_off(*t->call, lost(curl_easy_strerror(result))));
      // Else dropping the reply cuts the connection: the client sees that it is not all.
      if (result == CURLE_OK || t->streams()) t->reply->end();
      over(*t, t->head.status);
      return true;
    });
  }
  void over(Transfer& t, int status) {
    curl_multi_remove_handle(multi, t.curl);
    --active, --busy[t.server];
    if (verbose)
      log_info(t.call->peer, " ", t.call->method, " ", t.call->path, " ", status, " ", t.bytes, " bytes ",
               duration_text(t.watch.seconds()), " id=", t.call->id);
  }
};

Forwarder::Forwarder(Access access, std::string base_url, bool verbose)
    : access_(std::move(access)),
      transfers_(std::make_unique<Transfers>(std::vector{std::move(base_url)}, access_.api_key.empty(), verbose)) {}

Forwarder::Forwarder(Access access, std::vector<std::string> base_urls, bool verbose)
    : access_(std::move(access)),
      transfers_(std::make_unique<Transfers>(std::move(base_urls), /*key=*/true, verbose)) {}

Forwarder::~Forwarder() = default;

int64_t Forwarder::active() const { return transfers_->active; }

void Forwarder::place_copy(size_t copy, const std::string& base_url) {
  const std::lock_guard lock(transfers_->mutex);
  transfers_->base_urls.at(copy) = base_url;
}

std::optional<HttpAnswer> Forwarder::admit(const HttpCall& call) {
  if (auto answer = access_.refused(call, /*page=*/false)) return answer;
  static const std::set<std::string> of_one = {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/sleep",
                                               "/wake_up"};
  if (transfers_->copies > 1 && of_one.count(call.path))
    return error_answer(call, ApiError(501, str(call.path,
                                                " would change one of the copies of the model; name adapters when the "
                                                "server is started: --adapters NAME=DIR")));
  if (draining_) return error_answer(call, ApiError(503, "The server is stopping; it takes no new requests."));
  return std::nullopt;
}

HttpAnswer Forwarder::broken(const HttpCall& call, int status, const std::string& why) {
  return error_answer(call, ApiError(status, why));
}

void Forwarder::serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) {
  auto t = std::make_unique<Transfer>();
  t->call = std::move(call);
  t->reply = std::move(reply);
  t->head.content_type = "application/octet-stream";  // unless the other server says what it is
  access_.allow_origin(*t->call, t->head);
  t->reply->on_gone([gone = t->gone, multi = transfers_->multi] {
    *gone = true;
    curl_multi_wakeup(multi);
  });
  ++transfers_->active;
  {
    const std::lock_guard lock(transfers_->mutex);
    transfers_->arrived.push_back(std::move(t));
  }
  curl_multi_wakeup(transfers_->multi);
}

}  // namespace apus
