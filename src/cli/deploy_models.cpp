// SPDX-License-Identifier: Apache-2.0
#include "cli/deploy_models.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/ports.h"
#include "base/signals.h"
#include "cli/deploy_child.h"
#include "plan/device_facts.h"
#include "serve/child_server.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

using namespace std::chrono_literals;
constexpr double kShareOfMemory = 0.8;  // that all loaded models may use, where no flag says it
constexpr double kUsualCache = 2;       // GiB of keys and values of each, for the same reason
constexpr double kGiB = 1 << 30;

double cache_gb(const DeployOptions& o) { return o.engine.kv_cache_gb.value_or(kUsualCache); }

class ModelProcess : public HouseServer {
 public:
  ModelProcess(const DeployOptions& o, const HouseModel& model, const fs::path& logs) {
    const auto port = free_port();
    require(port.has_value(), Fault::Io, "no free port at 127.0.0.1");
    url_ = str("http://127.0.0.1:", *port);
    std::string name = model.name;
    std::replace(name.begin(), name.end(), '/', '_');
    log_ = logs / (name + ".log");
    // A server of several models must not take all of a device for one of them.
    child_ = std::make_unique<ChildServer>(
        ChildServer::Spec{.words = model_command(our_command_line(), model, *port, cache_gb(o)),
                          .program = "/proc/self/exe",
                          .output = log_});
  }
  std::string url() const override { return url_; }
  bool ready() override { return answers_health(url_); }
  std::optional<std::string> ended() override {
    const auto how = child_->ended();
    return how ? std::optional(*how + last_words(log_)) : std::nullopt;
  }

 private:
  std::string url_;
  fs::path log_;
  std::unique_ptr<ChildServer> child_;
};

void drain(const DeployOptions& o, Household& house, HttpServer& door) {
  house.drain();
  door.stop_accepting();
  const Stopwatch watch;
  while (house.active() > 0 && watch.seconds() < static_cast<double>(o.drain_seconds)) {
    house.look();
    std::this_thread::sleep_for(50ms);
  }
  if (house.active() > 0) log_warning(house.active(), " requests are cut off");
  door.stop();
}

}  // namespace

std::vector<HouseModel> models_to_deploy(const DeployOptions& o) {
  return models_in(o.models, static_cast<int64_t>(cache_gb(o) * kGiB));
}

int64_t memory_for_models(const DeployOptions& o) {
  if (o.models_memory_gb) return static_cast<int64_t>(*o.models_memory_gb * kGiB);
  return static_cast<int64_t>(kShareOfMemory * device_facts(o.model.device).memory);
}

std::vector<std::string> model_command(std::vector<std::string> words, const HouseModel& model, int port,
                                       std::optional<double> cache_gb) {
  const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
  add("--models", "");
  if (model.adapter)
    add("--adapters", model.name + "=" + model.path.string());
  else
    add("--model", model.path.string()), add("--served_model_name", model.name);
  add("--host", "127.0.0.1");
  add("--port", std::to_string(port));
  add("--ssl_keyfile", ""), add("--ssl_certfile", "");
  if (cache_gb) add("--kv_cache_gb", str(*cache_gb));
  return words;
}

int deploy_models(const DeployOptions& o) {
  const StopFlag stop;
  const fs::path logs = fs::path("logs") / local_time("%Y%m%d-%H%M%S");
  make_writable_dir(logs);
  const auto house = std::make_shared<Household>(
      HouseholdSpec{.access = {o.api_key.value_or(""), o.allowed_origins},
                    .models = [&o] { return models_to_deploy(o); },
                    .start = [&](const HouseModel& model) { return std::make_unique<ModelProcess>(o, model, logs); },
                    .memory = memory_for_models(o),
                    .most = o.models_most,
                    .idle_seconds = 60 * o.models_idle_minutes,
                    .most_waiting = static_cast<size_t>(o.max_waiting > 0 ? o.max_waiting : INT32_MAX),
                    .verbose = o.verbose});
  HttpServer door(http_server_spec(o), house);
  std::vector<std::string> names;
  for (const HouseModel& model : models_to_deploy(o)) names.push_back(model.name);
  log_info(names.size(), " models may be asked for: ", join(names), "; those that are loaded share ",
           bytes_text(memory_for_models(o)), "; their output is in ", logs.string());
  say_where_served(o, {"the models of " + o.models}, door.port());
  while (!stop.raised()) {
    house->look();
    std::this_thread::sleep_for(50ms);
  }
  drain(o, *house, door);
  log_info("stopped");
  return 0;
}

}  // namespace apus
