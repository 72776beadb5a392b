// SPDX-License-Identifier: Apache-2.0
// apus deploy: opens the model and serves it until a signal comes.
#include "run/deploy.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/adapter.h"
#include "models/spec/config.h"
#include "models/spec/score_head.h"
#include "run/opened_voice.h"
#include "run/runner.h"
#include "serve/api.h"
#include "serve/http_server.h"

namespace apus {

namespace {

using namespace std::chrono_literals;

ToolFormat tool_format_of(const DeployOptions& o, const Chat& chat) {
  return o.tool_call_parser == "auto" ? chat.tool_format() : tool_format(o.tool_call_parser);
}

// What clients can ask for.
std::vector<std::string> models_of(const ServiceSpec& service) {
  std::vector<std::string> models = service.engine->adapters();
  models.insert(models.begin(), service.model_name);
  return models;
}

// A model behind its address.
class ModelServer {
 public:
  ModelServer(const DeployOptions& o, ServiceSpec service)
      : o_(o),
        workers_(
            std::make_shared<Workers>(std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8))),
        keys_(o.api_keys.empty() ? nullptr : std::make_shared<KeyBook>(o.api_keys)),
        api_(std::make_shared<Api>(
            ApiSpec{
                .access = {o.api_key.value_or(""), o.allowed_origins, keys_},
                .verbose = o.verbose,
                .request_log = o.request_log,
                .result_path = o.result_path,
                .traces = o.otlp_traces_endpoint.empty() ? nullptr : std::make_shared<Traces>(o.otlp_traces_endpoint)},
            std::move(service), workers_)),
        server_(http_server_spec(o), api_) {}
  int port() const { return server_.port(); }
  // Until a signal comes. `watch` is called now and then, and what it throws ends it.
  void wait(const std::function<void()>& watch);
  void stop();

 private:
  void drain();
  const DeployOptions& o_;
  const StopFlag stop_;
  const std::shared_ptr<Workers> workers_;
  const std::shared_ptr<KeyBook> keys_;  // null: one key, or none
  const std::shared_ptr<Api> api_;
  HttpServer server_;
};

void ModelServer::wait(const std::function<void()>& watch) {
  Stopwatch since;
  while (!stop_.raised()) {
    std::this_thread::sleep_for(200ms);
    if (watch) watch();
    if (keys_) keys_->look_again();
    if (o_.log_interval <= 0 || since.seconds() < static_cast<double>(o_.log_interval)) continue;
    since.restart();
    if (const Json line = api_->statistics(); !line.is_null()) log_info(json_text(line));
  }
}

// New requests are refused, those under way may end.
void ModelServer::drain() {
  const auto seconds = static_cast<double>(o_.drain_seconds);
  api_->drain();
  server_.stop_accepting();
  if (api_->active() > 0)
    log_info("stopping: ", api_->active(), " requests are under way and have ", o_.drain_seconds,
             " seconds; a second signal ends at once");
  const Stopwatch watch;
  while (api_->active() > 0 && watch.seconds() < seconds) std::this_thread::sleep_for(50ms);
  if (api_->active() > 0) {
    log_warning(api_->active(), " requests are cut off");
    api_->stop_all();
  }
  // The last bytes of answers are still on their way to slow readers.
  while (api_->active() + server_.connections() > 0 && watch.seconds() < seconds + 2) std::this_thread::sleep_for(20ms);
}

void ModelServer::stop() {
  drain();
  server_.stop();
  workers_->stop();
  api_->stop();
  if (const Json line = api_->statistics(); !line.is_null()) log_info(json_text(line));
  log_info("stopped");
}

// One that is part of the model: it changes the base itself, or brings what the model gives in place of words.
bool stands_alone(const DeployOptions& o) {
  for (const ServedAdapter& each : o.served)
    require(o.served.size() == 1 || !changes_base(each.folder), Fault::Usage, "--adapters ", each.name, "=",
            each.folder,
            " trained parameters of the base model itself, which it cannot share with other adapters: serve it alone, "
            "or merge it by `apus export --merge_lora true`");
  return o.served.size() == 1 && (changes_base(o.served[0].folder) || (!gives_words(o.model) && !o.served[0].named));
}

void name_models(const DeployOptions& o, bool alone, ServiceSpec& service) {
  if (o.served.size() != 1) return;
  const std::string& name = o.served[0].name;
  if (!alone) {
    if (o.served[0].named) return;
    service.usual = name;
    return log_info("the adapter has the name '", name, "' and answers requests that name no model, '",
                    service.model_name, "' is the model without it; --adapters NAME=DIR gives another name");
  }
  if (gives_words(o.model))
    log_info("'", service.model_name, "' is not served beside '", name, "', which changes its own weights");
  service.model_name = name, service.aliases.clear();
}

// Where no model answers.
class SilentEngine final : public TextEngine {
 public:
  explicit SilentEngine(int64_t vocab) : vocab_(vocab) {}
  int64_t submit(EngineRequest) override { fail(Fault::Usage, "this model speaks and gives no words"); }
  void cancel(int64_t) override {}
  EngineStats stats() const override { return {}; }
  int64_t max_model_len() const override { return INT32_MAX; }
  int64_t vocab() const override { return vocab_; }
  std::vector<std::string> adapters() const override { return {}; }
  void load_adapter(const std::string&, const std::string&) override { refuse(); }
  void unload_adapter(const std::string&) override { refuse(); }
  void sleep(int) override { refuse(); }
  void wake() override { refuse(); }

 private:
  [[noreturn]] static void refuse() { fail(Fault::Usage, "a model that only speaks has no adapters and no sleep"); }
  const int64_t vocab_;
};

int deploy_voice(const DeployOptions& o) {
  require(o.served.empty(), Fault::Usage, "a model that only speaks has no adapters: leave out --adapters");
  const auto voice = open_lone_voice(o.model);
  Inference in;
  in.tokenizer = Tokenizer::load(o.model.model);
  in.chat = std::make_unique<Chat>(o.model.model, in.tokenizer, o.prompt);
  SilentEngine silent(in.tokenizer->vocab_size());
  ServiceSpec service = service_spec(o, in);
  service.engine = &silent, service.task.name = "speech";
  service.voice = voice.get(), service.speaker = o.speech.speaker, service.language = o.speech.language;
  service.like = recorded_voice(*voice, o.speech);
  return serve_model(o, std::move(service), {});
}

int run_deploy(const DeployOptions& o) {
  if (o.speech.alone) return deploy_voice(o);
  EngineOptions limits = o.engine;
  if (o.infer_backend == "pt") limits.spec.max_sequences = 1;
  AnswerRanks ranks(o.mesh, o.model.device);
  return ranks.world().guard([&] {
    require(ranks.copies() == 1, Fault::Usage, "these processes would make ", ranks.copies(),
            " copies of the model: start one process, with --data_parallel_size ", ranks.copies());
    const bool alone = stands_alone(o);
    const OpenedAdapter first = o.served.empty() ? OpenedAdapter()
                                : alone          ? OpenedAdapter(o.served[0].folder)
                                                 : OpenedAdapter(o.served[0].folder, o.served[0].name);
    Inference in = open_inference(o.model, o.placement, first, o.prompt, limits, o.task, o.quantise, &ranks);
    if (in.follower) return in.follower->run(), 0;
    for (size_t i = 1; i < o.served.size(); ++i) in.answering()->load_adapter(o.served[i].name, o.served[i].folder);
    const auto voice = o.speech.enabled ? open_voice(o.model, o.mesh, in) : nullptr;
    ServiceSpec service = service_spec(o, in);
    service.voice = voice.get(), service.speaker = o.speech.speaker, service.language = o.speech.language;
    name_models(o, alone, service);
    const auto watch = [&] {
      if (in.engine) in.engine->require_whole();
    };
    return serve_model(o, std::move(service), watch);
  });
}

const RegisterRunner<DeployOptions> deploy("deploy", run_deploy);

}  // namespace

int serve_model(const DeployOptions& o, ServiceSpec service, const std::function<void()>& watch) {
  const std::vector<std::string> models = models_of(service);
  ModelServer server(o, std::move(service));
  say_where_served(o, models, server.port());
  server.wait(watch);
  server.stop();
  return 0;
}

namespace {
ServedTask served_task(const DeployOptions& o, const Inference& in) {
  ServedTask task;
  if (gives_words(o.model)) return task;
  task.name = o.model.task_type, task.words = o.task.words, task.activation = o.task.reranker_use_activation;
  if (!has_score_head(o.model)) return task;
  const ScoreHead head = score_head_of(in.loaded.config).value_or(ScoreHead{});
  task.problem_type = head.problem_type;
  for (int64_t i = 0; i < head.labels; ++i) task.labels.push_back(label_name(in.loaded.config, i));
  if (!o.prompt.encoder) task.pad = Config(in.loaded.config).integer("pad_token_id", -1);
  return task;
}

// Of what clients name: a slow or hostile server must not hold up this one.
SourceLimits client_limits(const DeployOptions& o) {
  SourceLimits limits = source_limits();
  limits.bytes = o.max_media_mb << 20;
  limits.seconds = 3 * limits.quiet_seconds;
  limits.public_only = !o.allow_private_media_hosts;
  return limits;
}
}  // namespace

ServiceSpec service_spec(const DeployOptions& o, const Inference& in) {
  ServiceSpec s;
  s.model_name = o.served_model_name.value_or("model");
  s.aliases = {o.model.model};
  if (o.served_model_names.size() > 1)
    s.aliases.insert(s.aliases.end(), o.served_model_names.begin() + 1, o.served_model_names.end());
  s.owned_by = o.owned_by;
  s.task = served_task(o, in);
  s.engine = in.answering();
  s.chat = in.chat.get();
  s.media_limits = client_limits(o);
  if (in.media) s.media = in.media->within(s.media_limits);
  s.media_rules = {.folder = o.allowed_media_dir, .most = o.max_media};
  s.tokenizer = in.tokenizer;
  s.stop_ids = in.stop_ids;
  s.flags = o.answers;
  s.checkpoint = in.generation.wishes;
  s.stops = o.answers.stop_words;
  s.seed = static_cast<uint64_t>(o.common.seed);
  s.tool_format = tool_format_of(o, *in.chat);
  s.reasoning =
      o.reasoning_parser == "auto" ? guess_reasoning(in.chat->template_text(false)) : o.reasoning_parser == "on";
  s.max_logprobs = o.max_logprobs;
  s.allow_special_tokens = o.allow_special_tokens_in_prompt;
  s.max_waiting = o.max_waiting;
  return s;
}

}  // namespace apus
