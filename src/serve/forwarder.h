// SPDX-License-Identifier: Apache-2.0
// Passes requests on to another server of the same API, or to the least busy of several, and its answers back as they
// come: keys, logs and limits stay here.
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

  void drain() { draining_ = true; }
  int64_t active() const;

 private:
  struct Transfers;
  const Access access_;
  std::atomic<bool> draining_{false};
  std::unique_ptr<Transfers> transfers_;
};

bool answers_health(const std::string& base_url);  // GET /health gives 200; proxies are passed by

}  // namespace apus
