// SPDX-License-Identifier: Apache-2.0
// The options of `apus deploy`; its body is run/deploy.cpp.
#pragma once

#include "cli/answer_ranks.h"
#include "cli/served_adapters.h"
#include "cli/speech_options.h"
#include "cli/task_options.h"
#include "quant/wish.h"
#include "serve/http_server.h"

namespace apus {

class Rehearsal;  // cli/rehearsal.h
struct DeviceFacts;
struct PlanSpec;

struct DeployOptions {
  ModelOptions model;
  PlacementOptions placement;
  AdapterOptions adapters;
  TemplateOptions prompt;
  GenerationOptions answers;
  EngineOptions engine;
  TaskOptions task;
  RankOptions mesh;
  RunOptions common;
  SpeechOptions speech;
  quant::Wish quantise;  // of a plain checkpoint's weights, while they are loaded
  std::string host = "127.0.0.1";
  int64_t port = 8000;
  // Absent: APUS_API_KEY of the environment, else everybody may ask.
  std::optional<std::string> api_key;
  std::string api_keys;  // a file of several people's (serve/key_book.h); empty: there are none
  bool asks_for_keys() const { return api_key || !api_keys.empty(); }
  std::string ssl_keyfile, ssl_certfile;
  std::vector<std::string> served_model_names;   // as they were given: the name, and others that mean the same
  std::optional<std::string> served_model_name;  // absent: the name of the model's folder
  std::string models;                            // a folder of several, loaded when asked for; empty: one model
  std::optional<double> models_memory_gb;
  int64_t models_most = 0;
  double models_idle_minutes = 0;
  std::vector<ServedAdapter> served;  // --adapters with their names; filled by resolve()
  std::string owned_by = "apus";
  bool verbose = true;
  int64_t log_interval = 20;  // seconds between lines of statistics; -1: none
  int64_t max_logprobs = 20;
  // "engine": continuous batching; "pt": one request at a time; "vllm", "sglang"
  std::string infer_backend = "engine";
  bool use_installed_backend = false;  // another program's name in infer_backend means that program
  std::string vllm_server_base_url;    // of a server that runs already; empty: one is started
  std::optional<int64_t> vllm_tensor_parallel_size, vllm_pipeline_parallel_size, vllm_data_parallel_size,
      sglang_tp_size;
  Json vllm_engine_kwargs, sglang_engine_kwargs;  // further flags of that server
  std::string tool_call_parser = "auto";          // or the name of a format
  std::string reasoning_parser = "auto";          // auto, on, off
  int64_t max_waiting = 1000;                     // requests; 0: any number
  int64_t max_connections = 4096;
  int64_t max_body_mb = 32;
  int64_t drain_seconds = 60;
  std::string allowed_media_dir;  // empty: clients may name no files
  bool allow_private_media_hosts = false;
  int64_t max_media = 32, max_media_mb = 64;
  std::vector<std::string> allowed_origins;
  bool allow_special_tokens_in_prompt = false;
  std::string request_log, result_path, otlp_traces_endpoint;

  // The only one, which nobody gave a name.
  ServedAdapter* unnamed_adapter();
  void fields(OptionTable& v);
  void resolve(OptionTable& v);
  void check() const;
  void fetch() {
    if (upstream() || model.model.empty()) return;  // there it may be a name that the other program knows
    model.fetch();
    speech.settle(model, /*now=*/false);
    if (speech.alone) return;
    task.settle(model, prompt, served.empty() ? "" : served.front().folder);
    mesh.settle(model);
  }
  // Of the model: those that --data_parallel_size asks for, or for which NPROC_PER_NODE has processes.
  int64_t copies() const;
  bool upstream() const { return infer_backend == "vllm" || infer_backend == "sglang"; }
  void rehearse(Rehearsal& r) const;
  void prepare_plan(OptionTable& v, int64_t devices);
  PlanSpec plan_spec(const Json& config, const DeviceFacts& device, int64_t devices = 1) const;
  // Copies start their own.
  int64_t ranks() const { return upstream() ? 1 : copies() > 1 ? 0 : mesh.ranks_of_copy(); }
  std::filesystem::path ranks_dir() const;

 private:
  void take_foreign_backend(OptionTable& v);
  void name_models();
  void check_models() const;
};

// In the environment of a copy that deploy has started: its number.
constexpr const char* kCopyVariable = "APUS_COPY";

HttpServerSpec http_server_spec(const DeployOptions& options);
std::string served_at(const DeployOptions& options, int port);  // its address, as somebody here would type it
// In the log: who reaches it, and with what; a warning where anybody may use it.
void say_who_may_ask(const DeployOptions& options);
// Before that what clients can ask for, the model and then its adapters, and where.
void say_where_served(const DeployOptions& options, const std::vector<std::string>& models, int port);

}  // namespace apus
