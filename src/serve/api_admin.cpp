// SPDX-License-Identifier: Apache-2.0
// What administrators ask of a server that runs: loading and unloading LoRA adapters, sleep.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/own_requests.h"

namespace apus {

// A folder of the server's machine is named here, or everybody's answers held up: only who has the key may do that, so
// without a key there is no such endpoint.
void Api::check_admin(const Exchange& e, const char* what) const {
  if (spec_.access.api_key.empty())
    throw ApiError(403, str(what, " is for whoever holds the API key: start the server with --api_key."), "",
                   "api_key_needed");
  if (!spec_.access.is_administrator(*e.call))
    throw ApiError(403, str(what, " is for whoever holds the key that --api_key gave, not for those of --api_keys."),
                   "", "api_key_needed");
}

// Of everybody for the administrator, of oneself for others.
void Api::usage(const Exchange& e) {
  const Access& access = spec_.access;
  if (!access.keys)
    throw ApiError(404, "Usage is counted by key: start the server with --api_keys FILE.", "", "not_found");
  send_json(*e.reply, {{"object", "list"},
                       {"data", access.keys->usage(access.is_administrator(*e.call) ? "" : access.person(*e.call))}});
}

void Api::load_adapter(const Exchange& e) {
  check_admin(e, "Loading adapters");
  const auto [name, dir] = read_load_adapter_request(e.body());
  for (const auto& taken : service_.models())
    if (taken == name)
      throw ApiError(400, str("'", name, "' is served already; unload it first"), "lora_name", "name_taken");
  service_.spec().engine->load_adapter(name, dir);
  log_info("adapter ", name, " is loaded from ", dir);
  send_json(*e.reply, {{"object", "model"}, {"id", name}, {"parent", service_.spec().model_name}});
}

void Api::unload_adapter(const Exchange& e) {
  check_admin(e, "Unloading adapters");
  const std::string name = read_unload_adapter_request(e.body()).name;
  const auto adapters = service_.spec().engine->adapters();
  if (std::find(adapters.begin(), adapters.end(), name) == adapters.end())
    throw ApiError(404, str("no adapter named '", name.substr(0, 200), "' is loaded"), "lora_name", "model_not_found");
  service_.spec().engine->unload_adapter(name);  // waits for the requests that use it
  log_info("adapter ", name, " is unloaded");
  send_json(*e.reply, {{"object", "model"}, {"id", name}, {"deleted", true}});
}

// As vLLM's: /sleep?level=1 frees the cache, level=2 the weights too, until /wake_up. What is under way waits for it.
void Api::sleep(const Exchange& e) {
  check_admin(e, "Sleep");
  const std::string& query = e.call->query;
  if (query != "" && query != "level=1" && query != "level=2")
    refuse("level", "'level' must be 1 (the cache) or 2 (the cache and the weights)");
  const Stopwatch watch;
  const bool before = asleep_.exchange(true);  // refused from now on, not held up
  try {
    service_.spec().engine->sleep(query == "level=2" ? 2 : 1);
  } catch (...) {
    asleep_ = before;
    throw;
  }
  log_info("asleep", query.empty() ? "" : ", " + query, ", after ", duration_text(watch.seconds()));
  e.reply->send({});
}

void Api::wake(const Exchange& e) {
  check_admin(e, "Waking");
  const Stopwatch watch;
  service_.spec().engine->wake();
  asleep_ = false;
  log_info("awake after ", duration_text(watch.seconds()));
  e.reply->send({});
}

void Api::is_sleeping(const Exchange& e) { send_json(*e.reply, {{"is_sleeping", asleep_.load()}}); }

}  // namespace apus
