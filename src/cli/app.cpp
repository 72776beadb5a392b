// SPDX-License-Identifier: Apache-2.0
// `apus app`: a model and a page to chat with it; or the page alone, before a server that runs elsewhere.
#include <chrono>
#include <thread>

#include "base/assets.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/deploy.h"
#include "cli/infer_client.h"
#include "cli/rehearsal.h"
#include "serve/forwarder.h"

namespace apus {
namespace {

struct AppOptions {
  DeployOptions server;
  std::string base_url;
  AppOptions() { server.port = 7860, server.verbose = false, server.host = "127.0.0.1"; }
  void fields(OptionTable& v) {
    server.fields(v);
    v.group("Page");
    v("base_url", base_url, "a server that runs already, such as http://127.0.0.1:8000/v1: only the page is added")
        .common();
    for (const char* name : {"models", "models_memory_gb", "models_most", "models_idle_minutes"})
      v.at(name).refused("the page of `apus deploy --models` has them all");
    v.at("port").alias("server_port");
    v.at("host").alias("server_name");
    v.at("stream").idle_for("the page streams; a switch on it waits for whole answers");
    v.no_effect({"lang"}, "the page has few words, in English");
    v.no_effect({"studio_title", "is_multimodal"}, "the page shows the names of the models");
    v.refuse({"share"}, "the page is shown by this machine alone; --host 0.0.0.0 lets others of its network in");
  }
  void resolve(OptionTable& v) {
    if (base_url.empty()) server.resolve(v);
  }
  void check() const {
    if (base_url.empty()) return server.check();
    require(server.api_keys.empty(), Fault::Usage,
            "--api_keys counts what the model of this process answers: with --base_url the other server does that");
    api_root(base_url);
  }
  void fetch() {
    if (base_url.empty()) server.fetch();
  }
  void rehearse(Rehearsal& r) const {
    if (base_url.empty()) return server.rehearse(r);
    r.right("server", base_url);
  }
  DeployOptions& inner() { return server; }
};

// The page; everything else is the other server's.
class PageBefore : public HttpService {
 public:
  PageBefore(Access access, const std::string& url, bool verbose) : behind_(std::move(access), url, verbose) {}
  std::optional<HttpAnswer> admit(const HttpCall& call) override {
    return is_page(call) ? std::nullopt : behind_.admit(call);
  }
  void serve(std::shared_ptr<const HttpCall> call, std::shared_ptr<Responder> reply) override {
    if (!is_page(*call)) return behind_.serve(std::move(call), std::move(reply));
    reply->send({.body = std::string(asset("chat.html")), .content_type = "text/html; charset=utf-8"});
  }
  HttpAnswer broken(const HttpCall& call, int status, const std::string& why) override {
    return behind_.broken(call, status, why);
  }

 private:
  static bool is_page(const HttpCall& call) { return call.method == "GET" && call.path == "/"; }
  Forwarder behind_;
};

int page_before(const AppOptions& o) {
  const StopFlag stop;
  std::string url = api_root(o.base_url);
  if (url.ends_with("/v1")) url.resize(url.size() - 3);
  if (!answers_health(url)) log_warning(url, "/health does not answer with 200 now; requests go there nevertheless");
  HttpServer server(http_server_spec(o.server),
                    std::make_shared<PageBefore>(Access{o.server.api_key.value_or(""), o.server.allowed_origins}, url,
                                                 o.server.verbose));
  const std::string api = served_at(o.server, server.port());
  log_info("a page to chat on: ", api.substr(0, api.size() - 2));
  while (!stop.raised()) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  server.stop();
  return 0;
}

int run(const AppOptions& o) {
  if (!o.base_url.empty()) return page_before(o);
  return run_heavy("deploy", &o.server);
}

const RegisterCommand<AppOptions> app_command({.name = "app",
                                               .group = "Run",
                                               .summary = "a page to chat with a model",
                                               .examples = {"app --model DIR",
                                                            "app --base_url http://127.0.0.1:8000/v1"}},
                                              run);

}  // namespace
}  // namespace apus
