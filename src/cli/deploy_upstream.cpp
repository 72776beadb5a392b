// SPDX-License-Identifier: Apache-2.0
#include "cli/deploy_upstream.h"

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "base/ports.h"
#include "base/program.h"
#include "base/signals.h"
#include "serve/child_server.h"
#include "serve/forwarder.h"
#include "serve/http_server.h"

namespace apus {

namespace {

using namespace std::chrono_literals;

// {"max_loras": 4, "enforce_eager": true} as --max-loras 4 --enforce-eager; an object or list as JSON.
void add_arguments(const Json& kwargs, std::vector<std::string>& words) {
  if (!kwargs.is_object()) return;
  for (const auto& [key, value] : kwargs.items()) {
    std::string flag = "--" + key;
    for (char& c : flag)
      if (c == '_') c = '-';
    if (value.is_null() || (value.is_boolean() && !value.get<bool>())) continue;
    words.push_back(flag);
    if (!value.is_boolean()) words.push_back(value.is_string() ? value.get<std::string>() : json_text(value));
  }
}

// The wishes that vLLM's server takes from a generation_config.json, beside max_new_tokens.
bool is_taken(const std::string& name) {
  static const std::set<std::string> taken = {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"};
  return taken.count(name) > 0;
}

// What requests leave open, as generation_config.json says it.
Json generation_config(const GenerationOptions& o) {
  Json out = Json::object();
  if (o.max_new_tokens) out["max_new_tokens"] = *o.max_new_tokens;
  each_sampling_field([&](const auto& field) {
    if (is_taken(field.name) && o.*field.wish) out[field.name] = *(o.*field.wish);
  });
  return out;
}

void wait_until_ready(const std::string& url, ChildServer& child, const StopFlag& stop) {
  const Stopwatch watch;
  log_info("waiting for ", url, "/health");
  for (;;) {
    if (answers_health(url)) return log_info("it is ready after ", duration_text(watch.seconds()));
    stop.throw_if_raised();
    if (const auto how = child.ended())
      fail(Fault::Device, "the server ended before it was ready (", *how, "); what it printed says why");
    require(watch.seconds() < kServerStartSeconds, Fault::Device, "the server is not ready after ",
            duration_text(watch.seconds()));
    std::this_thread::sleep_for(300ms);
  }
}

std::string without_v1(std::string url) {
  while (!url.empty() && url.back() == '/') url.pop_back();
  return url.ends_with("/v1") ? url.substr(0, url.size() - 3) : url;
}

}  // namespace

void note_idle_flags(const DeployOptions& o, OptionTable& v) {
  const auto idle = [&v](const std::string& names, const std::string& why) {
    std::istringstream words(names);
    for (std::string name; words >> name;)
      if (v.given(name)) v.notes.push_back(str("--", name, " has no effect with ", why));
  };
  std::string taken = "max_new_tokens", untaken;
  each_sampling_field([&](const auto& field) { (is_taken(field.name) ? taken : untaken) += str(" ", field.name); });
  idle(
      "model_type device kv_cache_gb max_batched_tokens enable_prefix_caching system chat_template_kwargs "
      "use_chat_template agent_template enable_thinking response_prefix max_length truncation_strategy "
      "stop_words max_logprobs max_waiting tool_call_parser reasoning_parser owned_by log_interval "
      "request_log result_path otlp_traces_endpoint" +
          untaken,
      str("--infer_backend ", o.infer_backend, ", whose own flags --", o.infer_backend, "_engine_kwargs takes"));
  if (!o.vllm_server_base_url.empty()) {
    const char* const why = "--vllm_server_base_url: that server runs already";
    idle(
        "model adapters torch_dtype max_model_len max_num_seqs memory_utilization seed chat_template template "
        "served_model_name vllm_tensor_parallel_size vllm_pipeline_parallel_size vllm_data_parallel_size "
        "sglang_tp_size vllm_engine_kwargs sglang_engine_kwargs",
        why);
    idle(taken, why);
  } else if (o.infer_backend == "sglang") {
    idle(taken, "--infer_backend sglang: requests say it for themselves");
  }
}

std::vector<std::string> upstream_command(const DeployOptions& o, const std::string& program, int port) {
  const bool vllm = o.infer_backend == "vllm";
  std::vector<std::string> words = {program, "serve"};
  const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
  vllm ? words.push_back(o.model.model) : add("--model-path", o.model.model);
  add("--host", "127.0.0.1");
  add("--port", std::to_string(port));
  add("--served-model-name", o.served_model_name.value_or(o.model.model));
  if (o.model.torch_dtype) add("--dtype", *o.model.torch_dtype);
  if (o.model.max_model_len) add(vllm ? "--max-model-len" : "--context-length", std::to_string(*o.model.max_model_len));
  add(vllm ? "--max-num-seqs" : "--max-running-requests", std::to_string(o.engine.spec.max_sequences));
  add(vllm ? "--gpu-memory-utilization" : "--mem-fraction-static", str(o.engine.spec.memory_fraction));
  add(vllm ? "--seed" : "--random-seed", std::to_string(o.common.seed));
  if (const Json wishes = generation_config(o.answers); vllm && !wishes.empty())
    add("--override-generation-config", json_text(wishes));
  if (!o.prompt.chat_template.empty()) add("--chat-template", o.prompt.chat_template);
  const auto& tp = vllm ? o.vllm_tensor_parallel_size : o.sglang_tp_size;
  if (tp) add(vllm ? "--tensor-parallel-size" : "--tp-size", std::to_string(*tp));
  if (vllm && o.vllm_pipeline_parallel_size)
    add("--pipeline-parallel-size", std::to_string(*o.vllm_pipeline_parallel_size));
  if (vllm && o.vllm_data_parallel_size) add("--data-parallel-size", std::to_string(*o.vllm_data_parallel_size));
  if (!o.served.empty()) {
    if (vllm) words.push_back("--enable-lora");
    words.push_back(vllm ? "--lora-modules" : "--lora-paths");
    for (const ServedAdapter& a : o.served) words.push_back(a.name + "=" + a.folder);
  }
  add_arguments(vllm ? o.vllm_engine_kwargs : o.sglang_engine_kwargs, words);
  return words;
}

int deploy_upstream(const DeployOptions& o) {
  const StopFlag stop;
  std::unique_ptr<ChildServer> child;
  std::string url = without_v1(o.vllm_server_base_url);
  if (url.empty()) {
    const auto port = free_port();
    require(port.has_value(), Fault::Io, "no free port at 127.0.0.1");
    const auto words = upstream_command(o, program_on_path(o.infer_backend)->string(), *port);
    std::string line;
    for (const auto& w : words) line += " " + w;
    log_info("starting", line);
    child = std::make_unique<ChildServer>(ChildServer::Spec{.words = words});
    url = str("http://127.0.0.1:", *port);
    wait_until_ready(url, *child, stop);
  } else if (!answers_health(url)) {
    log_warning(url, "/health does not answer with 200 now; requests go there nevertheless");
  }
  const auto forwarder = std::make_shared<Forwarder>(Access{o.api_key.value_or(""), o.allowed_origins}, url, o.verbose);
  HttpServer server(http_server_spec(o), forwarder);
  log_info("serving ", url, " at ", served_at(o, server.port()));
  say_who_may_ask(o);
  while (!stop.raised() && !(child && child->ended())) std::this_thread::sleep_for(200ms);
  if (!stop.raised())
    fail(Fault::Device, "the server behind this one has ended (", *child->ended(), "); what it printed says why");
  forwarder->drain();
  server.stop_accepting();
  const Stopwatch watch;
  while (forwarder->active() > 0 && watch.seconds() < static_cast<double>(o.drain_seconds))
    std::this_thread::sleep_for(50ms);
  server.stop();
  log_info("stopped");
  return 0;
}

}  // namespace apus
