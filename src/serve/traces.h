// SPDX-License-Identifier: Apache-2.0
// Requests as spans of OpenTelemetry, sent to a collector (OTLP over HTTP, in JSON) by a thread of their own: no
// request waits for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"

namespace apus {

struct RequestSpan {
  std::string trace, parent;  // hexadecimal, 32 and 16 digits: the client's, or made here and none
  std::string method, path, id, model, finish, key;
  int status = 0;
  double begin = 0, end = 0;  // seconds since 1970
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  double first_token = -1;  // seconds; -1: none came
};

// Of a request's `traceparent` header (W3C: 00-TRACE-PARENT-FLAGS); a new trace where there is none that is right.
void place_in_trace(const std::string& traceparent, RequestSpan& span);
// The body of a request to a collector.
Json otlp_traces(const std::vector<RequestSpan>& spans, const std::string& service);

class Traces {
 public:
  // Of http://HOST:4318, to which /v1/traces is added, or of a whole address; Fault::Usage where it is neither.
  static std::string address(const std::string& url);
  explicit Traces(const std::string& url);
  ~Traces();  // sends what is left
  void add(RequestSpan span);

 private:
  void work();
  void send(const std::vector<RequestSpan>& spans);
  std::string url_, service_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<RequestSpan> waiting_;
  int64_t lost_ = 0;
  bool stop_ = false, failing_ = false;
  std::thread thread_;
};

}  // namespace apus
