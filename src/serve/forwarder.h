// SPDX-License-Identifier: Apache-2.0
// Passes requests on to another server of the same API, or to the least busy of several, and its answers back as they
// come: keys, logs and limits stay here. A server that is lost meanwhile is told to its clients as an error that they
// can repeat the request after: 503, or the last event of a stream.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "serve/access.h"
#include "serve/http.h"

namespace apus {

class Forwarder : public HttpService {
 public:
  Forwarder(Access access, std::string base_url, bool verbose);  // base_url: http://host:port, without /v1
  Forwarder(Access access, std::vector<std::string> base_urls, bool verbose);  // of copies, which know the key
  ~Forwarder() override;

  std::optional<HttpAnswer> admit(const HttpCall& call) override;
  void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) override;
  HttpAnswer broken(const HttpCall& call, int status, const std::string& why) override;

  // Where a copy is now; empty: nowhere, and it is asked nothing until it is back. It may answer on another port then.
  void place_copy(size_t copy, const std::string& base_url);
  void drain() { draining_ = true; }
  int64_t active() const;

 private:
  struct Transfers;
  const Access access_;
  std::atomic<bool> draining_{false};
  std::unique_ptr<Transfers> transfers_;
};

// Of a server behind this one; proxies are passed by.
bool answers_health(const std::string& base_url);                                         // GET /health gives 200
std::vector<std::string> models_at(const std::string& base_url, const std::string& key);  // names; none: no answer

}  // namespace apus
