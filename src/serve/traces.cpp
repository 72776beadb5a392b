// SPDX-License-Identifier: Apache-2.0
#include "serve/traces.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "hub/http.h"
#include "serve/openai_answer.h"

namespace apus {
namespace {

constexpr size_t kMostWaiting = 4096, kAtOnce = 512;
constexpr auto kEvery = std::chrono::seconds(2);

bool is_hex(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == std::string::npos &&
         text.find_first_not_of('0') != std::string::npos;
}

// OTLP writes 64-bit numbers as text.
std::string nanoseconds(double seconds) {
  return std::to_string(static_cast<int64_t>(std::floor(seconds)) * 1'000'000'000 +
                        static_cast<int64_t>((seconds - std::floor(seconds)) * 1e9));
}

Json attributes_of(const RequestSpan& span) {
  Json all = Json::array();
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) all.push_back({{"key", name}, {"value", {{"stringValue", value}}}});
  };
  const auto whole = [&](const char* name, int64_t value) {
    all.push_back({{"key", name}, {"value", {{"intValue", std::to_string(value)}}}});
  };
  text("http.request.method", span.method);
  text("url.path", span.path);
  whole("http.response.status_code", span.status);
  text("gen_ai.response.id", span.id);
  text("gen_ai.request.model", span.model);
  text("apus.key", span.key);
  if (span.prompt_tokens == 0) return all;
  text("gen_ai.response.finish_reasons", span.finish);
  whole("gen_ai.usage.input_tokens", span.prompt_tokens);
  whole("gen_ai.usage.output_tokens", span.completion_tokens);
  whole("apus.cached_tokens", span.cached_tokens);
  if (span.first_token >= 0)
    all.push_back({{"key", "gen_ai.server.time_to_first_token"}, {"value", {{"doubleValue", span.first_token}}}});
  return all;
}

Json span_json(const RequestSpan& span) {
  Json out = {{"traceId", span.trace}, {"spanId", random_id("", 16)}};
  if (!span.parent.empty()) out["parentSpanId"] = span.parent;
  constexpr int kServer = 2, kError = 2;  // kinds of spans, and of their status
  out.update({{"name", span.method + " " + span.path},
              {"kind", kServer},
              {"startTimeUnixNano", nanoseconds(span.begin)},
              {"endTimeUnixNano", nanoseconds(span.end)},
              {"attributes", attributes_of(span)}});
  if (span.status >= 500) out["status"] = {{"code", kError}};
  return out;
}

}  // namespace

void place_in_trace(const std::string& traceparent, RequestSpan& span) {
  // 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
  const bool shaped = traceparent.size() >= 55 && traceparent[2] == '-' && traceparent[35] == '-' &&
                      traceparent[52] == '-' && traceparent.compare(0, 2, "ff") != 0;
  if (shaped && is_hex(traceparent.substr(3, 32)) && is_hex(traceparent.substr(36, 16)))
    span.trace = traceparent.substr(3, 32), span.parent = traceparent.substr(36, 16);
  else
    span.trace = random_id("", 32), span.parent.clear();
}

Json otlp_traces(const std::vector<RequestSpan>& spans, const std::string& service) {
  Json list = Json::array();
  for (const RequestSpan& span : spans) list.push_back(span_json(span));
  const Json named = {{"key", "service.name"}, {"value", {{"stringValue", service}}}};
  return {
      {"resourceSpans",
       Json::array({{{"resource", {{"attributes", Json::array({named})}}},
                     {"scopeSpans", Json::array({{{"scope", {{"name", "apus"}}}, {"spans", std::move(list)}}})}}})}};
}

std::string Traces::address(const std::string& url) {
  const size_t host = url.find("://");
  require(url.starts_with("http://") || url.starts_with("https://"), Fault::Usage, "--otlp_traces_endpoint ", url,
          ": http://HOST:4318 is needed (OTLP over HTTP; gRPC is not spoken)");
  const size_t path = url.find('/', host + 3);
  if (path == std::string::npos) return url + "/v1/traces";
  return path + 1 == url.size() ? url + "v1/traces" : url;
}

Traces::Traces(const std::string& url) : url_(address(url)) {
  const char* const name = std::getenv("OTEL_SERVICE_NAME");
  service_ = name && *name ? name : "apus";
  thread_ = std::thread([this] { work(); });
}

Traces::~Traces() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Traces::add(RequestSpan span) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostWaiting) {
    ++lost_;
    return;
  }
  waiting_.push_back(std::move(span));
  if (waiting_.size() == kAtOnce) wake_.notify_one();
}

void Traces::work() {
  std::unique_lock lock(mutex_);
  while (!stop_ || !waiting_.empty()) {
    wake_.wait_for(lock, kEvery, [this] { return stop_ || waiting_.size() >= kAtOnce; });
    std::vector<RequestSpan> now;
    const size_t some = std::min(waiting_.size(), kAtOnce);
    now.assign(std::make_move_iterator(waiting_.begin()),
               std::make_move_iterator(waiting_.begin() + static_cast<std::ptrdiff_t>(some)));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(some));
    if (now.empty()) continue;
    lock.unlock();
    send(now);
    lock.lock();
  }
}

// A collector that is away is told once, and once when it is back.
void Traces::send(const std::vector<RequestSpan>& spans) {
  const HttpReply reply = http_request({.url = url_,
                                        .headers = {"Content-Type: application/json"},
                                        .post = json_text(otlp_traces(spans, service_)),
                                        .body_limit = 1 << 20,
                                        .quiet_seconds = 5,
                                        .most_seconds = 10});
  const bool failed = reply.status < 200 || reply.status > 299;
  int64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failed) lost_ += static_cast<int64_t>(spans.size());
    lost = failed ? lost_ : std::exchange(lost_, 0);
  }
  if (failed && !std::exchange(failing_, true))
    log_warning("traces are lost: ", url_, reply.status ? str(" answers ", reply.status) : " " + reply.error);
  if (!failed && std::exchange(failing_, false))
    log_info("traces are sent again; ", lost, " requests are not among them");
}

}  // namespace apus
