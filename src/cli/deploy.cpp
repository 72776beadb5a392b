// SPDX-License-Identifier: Apache-2.0
#include "cli/deploy.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/program.h"
#include "checkpoint/adapter_config.h"
#include "cli/command.h"
#include "cli/deploy_copies.h"
#include "cli/deploy_models.h"
#include "cli/deploy_upstream.h"
#include "cli/plan_spec.h"
#include "cli/rehearsal.h"
#include "dist/launch/environment.h"
#include "serve/key_book.h"
#include "serve/traces.h"
#include "text/agent_template.h"
#include "text/tool_calls.h"

namespace apus {

void DeployOptions::fields(OptionTable& v) {
  model.fields(v);
  quantise.honour(v);
  task.fields(v, model);
  placement.fields(v);
  adapters.fields(v);
  v.group("Server");
  v.at("adapters").help =
      "adapters that clients ask for by name: NAME=DIR, several if wanted. Without NAME= one is called as the folder "
      "of its runs is, or lora. The model itself is served too, under its own name";
  v("host", host, "address to listen at: 127.0.0.1 is for this machine alone, 0.0.0.0 for others too").common();
  v("port", port, "port; when it is taken, the next free one is used and said").common().at_least(0).at_most(65535);
  v("api_key", api_key, "what clients must send as Authorization: Bearer KEY")
      .common()
      .shown_default("APUS_API_KEY of the environment, else none is asked for");
  v("api_keys", api_keys,
    "JSON file of several people's keys: {\"alice\": \"KEY\", \"bob\": {\"key\": \"KEY\", \"requests_per_minute\": 60, "
    "\"tokens_per_minute\": 20000}}. What each has had is at /usage and /metrics; a changed file is read again. "
    "--api_key "
    "is the administrator's then");
  v("ssl_keyfile", ssl_keyfile, "PEM file of the private key: with it the server speaks TLS");
  v("ssl_certfile", ssl_certfile, "PEM file of the certificate chain");
  v("served_model_name", served_model_names,
    "name for clients: of the model, or of the only adapter when --adapters gave it none. Of several the model answers "
    "to all")
      .common()
      .shown_default("the name of its folder");
  v("models", models,
    "a folder with several models, in place of --model: folders of checkpoints and adapters and GGUF files. Each is "
    "loaded "
    "when a "
    "request names it, and those asked for least lately go where memory is short")
      .common()
      .shown_default("none");
  v("models_memory_gb", models_memory_gb, "--models: GiB that those that are loaded may use together")
      .above(0)
      .shown_default("80 % of the device's memory");
  v("models_most", models_most, "--models: how many may be loaded at once; 0: as many as the memory holds").at_least(0);
  v("models_idle_minutes", models_idle_minutes, "--models: one that nobody asks for so long is unloaded; 0: never")
      .at_least(0);
  v("owned_by", owned_by, "the owner of the models that /v1/models names");
  v("verbose", verbose, "a log line for each request");
  v("log_interval", log_interval, "seconds between lines of statistics while there is something to say; -1: none")
      .at_least(-1);
  v("request_log", request_log, "JSONL file: one line for each request, with ids, times and token counts");
  v("otlp_traces_endpoint", otlp_traces_endpoint,
    "collector of OpenTelemetry, such as http://127.0.0.1:4318, that gets a span for each request (OTLP over HTTP)");
  v("result_path", result_path, "JSONL file: the answers that were not streamed, with their requests");
  v("enable_audio_output", speech.enabled,
    "answers are spoken where a request wants it (\"modalities\": [\"text\", \"audio\"], or /v1/audio/speech); of "
    "Qwen2.5-Omni and Qwen3-Omni");
  speech.voice_fields(v);
  v("max_logprobs", max_logprobs, "most alternatives that a request may ask for").at_least(0).at_most(100);
  v("infer_backend", infer_backend,
    "engine: many requests at once. pt: one after the other. vllm, sglang, lmdeploy: the engine too, as it batches and "
    "pages like them")
      .choices({"engine", "pt", "transformers", "vllm", "sglang", "lmdeploy"});
  v("use_installed_backend", use_installed_backend,
    "vllm and sglang mean those programs: that server, found on PATH, is started behind this one");
  v("vllm_server_base_url", vllm_server_base_url,
    "with vllm or sglang: a server that runs already; nothing is started then")
      .alias("sglang_server_base_url");
  v("vllm_engine_kwargs", vllm_engine_kwargs, "with vllm: further flags of its server, as JSON: {\"max_loras\": 4}");
  v("sglang_engine_kwargs", sglang_engine_kwargs, "with sglang: further flags of its server, as JSON");
  std::vector<std::string> parsers = tool_format_names();
  parsers.insert(parsers.begin(), "auto");
  v("tool_call_parser", tool_call_parser, "form of tool calls in answers")
      .common()
      .choices(parsers)
      .shown_default("auto: from the chat template");
  v("reasoning_parser", reasoning_parser, "split <think>...</think> off as reasoning_content")
      .choices({"auto", "on", "off"})
      .shown_default("auto: from the chat template");
  v.refuse({"vllm_reasoning_parser"}, "--reasoning_parser on splits <think>...</think> off");
  v("max_waiting", max_waiting,
    "requests that may wait for a place in the batch; more are answered with 429. 0: any number")
      .at_least(0);
  v("max_connections", max_connections, "connections at once").at_least(1);
  v("max_body_mb", max_body_mb, "largest request in MiB; larger ones are answered with 413").at_least(1).at_most(2048);
  v("drain_seconds", drain_seconds, "after SIGTERM or Ctrl-C, time for the answers under way").at_least(0);
  v("allowed_media_dir", allowed_media_dir,
    "folder below which clients may name images, videos and sounds of this machine, as file:///... or a path")
      .shown_default("none: they send them, or name a URL");
  v("allow_private_media_hosts", allow_private_media_hosts,
    "URLs of clients may lead to this machine and into private networks: for tests, and where every client is trusted");
  v("max_media", max_media, "most images, sounds and frames of videos in a request").at_least(0);
  v("max_media_mb", max_media_mb, "largest image, video or sound in MiB").at_least(1).at_most(2048);
  v("allowed_origins", allowed_origins, "web pages that may ask from a browser (CORS); *: all").shown_default("none");
  v("allow_special_tokens_in_prompt", allow_special_tokens_in_prompt,
    "special tokens that stand in messages (<|im_end|>) are tokens, not text: for those who write prompts by hand");
  v.no_effect({"log_level"}, "set LOG_LEVEL in the environment");
  v.no_effect({"vllm_enable_lora", "vllm_max_lora_rank"},
              "adapters of any rank are served; name them by --adapters name=DIR");
  v.refuse({"dataset", "val_dataset", "strict", "load_data_args", "val_dataset_sample", "max_batch_size", "metric"},
           "requests bring the questions; `apus infer` answers files");
  plain_rows_fields(v);
  prompt.fields(v);
  answers.fields(v);
  for (const char* name : {"stream", "logprobs", "top_logprobs"}) v.at(name).refused("each request says it for itself");
  engine.fields(v);
  v.at("vllm_tensor_parallel_size")
      .honoured(&vllm_tensor_parallel_size, "with vllm: devices that share each layer")
      .at_least(1);
  v.at("vllm_pipeline_parallel_size")
      .honoured(&vllm_pipeline_parallel_size, "with vllm: devices that hold layers one after the other")
      .at_least(1);
  v.at("vllm_data_parallel_size").honoured(&vllm_data_parallel_size, "with vllm: copies of the model").at_least(1);
  v.at("sglang_tp_size").honoured(&sglang_tp_size, "with sglang: devices that share each layer").at_least(1);
  for (const char* name : {"vllm_enable_expert_parallel", "sglang_pp_size", "sglang_dp_size", "sglang_ep_size",
                           "sglang_enable_ep_moe", "sglang_enable_dp_attention"})
    v.at(name).idle_for(
        "--tensor_model_parallel_size and --expert_model_parallel_size share a model out, --data_parallel_size makes "
        "copies of it, --device_map auto lays it over several devices");
  untrained_fields(v);
  mesh.fields(v);
  mesh.copies_field(v, "requests go to the one that has the fewest");
  common.fields(v);
}

ServedAdapter* DeployOptions::unnamed_adapter() {
  return served.size() == 1 && !served.front().named ? &served.front() : nullptr;
}

// Of the model and of each adapter, before a hub's id becomes a folder of the cache.
void DeployOptions::name_models() {
  if (!served_model_names.empty()) served_model_name = served_model_names.front();
  require(served_model_names.size() < 2 || !unnamed_adapter(), Fault::Usage,
          "several names in --served_model_name are the model's: call the adapter by --adapters NAME=DIR");
  std::string own;
  if (!model.model.empty()) {
    const auto folder = std::filesystem::absolute(model.model).lexically_normal();
    own = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  }
  if (ServedAdapter* const only = unnamed_adapter(); only && served_model_name && *served_model_name != own)
    only->name = *std::exchange(served_model_name, own), only->named = false;
  else
    name_adapters(served, served_model_name.value_or(own));
  if (!served_model_name && !own.empty()) served_model_name = own;
}

// Other programs' names for what the engine does, in scripts that were written for them.
void DeployOptions::take_foreign_backend(OptionTable& v) {
  const bool foreign = infer_backend == "vllm" || infer_backend == "sglang" || infer_backend == "lmdeploy";
  if (!foreign || use_installed_backend || !vllm_server_base_url.empty()) return;
  v.notes.push_back(str("--infer_backend ", infer_backend,
                        ": Apus's own engine serves, which batches continuously with a paged cache as it does; "
                        "--use_installed_backend true starts that program"));
  infer_backend = "engine";
  mesh.foreign_tensor = vllm_tensor_parallel_size ? vllm_tensor_parallel_size : sglang_tp_size;
  if (vllm_data_parallel_size && !v.given("data_parallel_size")) mesh.data_parallel_size = *vllm_data_parallel_size;
  for (const char* name : {"vllm_pipeline_parallel_size", "vllm_engine_kwargs", "sglang_engine_kwargs"})
    if (v.given(name))
      v.notes.push_back(str("--", name, " has no effect: it is of that program; --device_map auto spreads a model"));
  vllm_tensor_parallel_size.reset(), vllm_pipeline_parallel_size.reset(), vllm_data_parallel_size.reset(),
      sglang_tp_size.reset();
  vllm_engine_kwargs = sglang_engine_kwargs = Json();
}

void DeployOptions::resolve(OptionTable& v) {
  for (const char* name : {"models_memory_gb", "models_most", "models_idle_minutes"})
    if (models.empty() && v.given(name) && !v.given("models"))
      v.notes.push_back(str("--", name, " has no effect without --models"));
  take_foreign_backend(v);
  if (upstream()) note_idle_flags(*this, v);
  task.before_resolve(v);
  served = served_adapters(adapters.folders);
  adapters.folders.clear();
  for (ServedAdapter& each : served) adapters.folders.push_back(each.folder = adapter_meant(each.folder, v));
  adapters.take_settings(v, model);
  task.after_resolve(v, model);
  name_models();
  model.HubFlags::resolve();
  mesh.resolve(v);
  prompt.resolve(v);
  if (const std::string stop = AgentTemplate::stop_of(prompt.agent_template); !stop.empty())
    answers.stop_words.push_back(stop);
  if (infer_backend == "transformers") infer_backend = "pt";
  if (!api_key)
    if (const char* key = std::getenv("APUS_API_KEY")) api_key = key;
}

void DeployOptions::check_models() const {
  require(model.model.empty() && served.empty(), Fault::Usage,
          "--models serves a folder of models: --model and --adapters serve one; give either");
  require(api_keys.empty(), Fault::Usage,
          "--api_keys counts the tokens of one model, and --models passes requests on: give one --api_key");
  require(
      !upstream() && mesh.ranks_of_all() == 1 && copies() == 1, Fault::Usage,
      "--models runs each model in one process of this program: leave out --infer_backend, --data_parallel_size and "
      "--tensor_model_parallel_size");
  require(std::filesystem::is_directory(models), Fault::Usage, "--models ", models, " is not a folder here");
  require(
      !models_to_deploy(*this).empty(), Fault::Usage, "--models ", models,
      " holds no model: folders with a config.json or adapter_config.json, or .gguf files, are looked for in it, and "
      "in the folders in it");
}

void DeployOptions::check() const {
  if (!models.empty()) return check_models();
  require(
      infer_backend != "lmdeploy", Fault::Usage,
      "--infer_backend lmdeploy with --use_installed_backend true: that program is not started here; vllm and sglang "
      "are, and without --use_installed_backend the engine serves");
  require(!use_installed_backend || upstream(), Fault::Usage,
          "--use_installed_backend true belongs to --infer_backend vllm or sglang");
  const bool theirs = vllm_tensor_parallel_size || vllm_pipeline_parallel_size || vllm_data_parallel_size ||
                      sglang_tp_size || vllm_engine_kwargs.is_object() || sglang_engine_kwargs.is_object() ||
                      !vllm_server_base_url.empty();
  require(upstream() || !theirs, Fault::Usage,
          "flags of another program's server need --infer_backend vllm or sglang with --use_installed_backend true");
  require(!upstream() || !placement.placed(), Fault::Usage,
          "--device_map and --max_memory are of --infer_backend engine; the other server spreads a model by "
          "--vllm_tensor_parallel_size");
  placement.check(model);
  mesh.check(model, placement, quantise.any());
  require(!upstream() || mesh.ranks_of_all() == 1, Fault::Usage,
          "--tensor_model_parallel_size, --expert_model_parallel_size and --data_parallel_size are of --infer_backend "
          "engine; the other server takes --vllm_tensor_parallel_size, --vllm_data_parallel_size or --sglang_tp_size");
  require(
      mesh.data_parallel_size == 1 || (model.device.find(':') == std::string::npos && !placement.placed()),
      Fault::Usage,
      "--data_parallel_size puts each copy of the model on devices of its own: give --device the kind alone, and no "
      "--device_map");
  if (const auto plan = read_launch(process_environment()); plan && mesh.data_parallel_size > 1)
    require(plan->ranks * plan->nodes == mesh.ranks_of_all(), Fault::Usage, "NPROC_PER_NODE=", plan->ranks,
            " in the environment, and --data_parallel_size ", mesh.data_parallel_size, " needs ", mesh.ranks_of_all(),
            " processes, which it starts itself: unset it");
  require(!upstream() || !quantise.any(), Fault::Usage,
          "--quant_method is of --infer_backend engine; the other server takes its own by --vllm_engine_kwargs or "
          "--sglang_engine_kwargs");
  quantise.check();
  require(
      engine.drafting.spec().tokens == 0 || !upstream(), Fault::Usage,
      "--speculative_config, --num_speculative_tokens, --speculative_ngram and --draft_model are of --infer_backend "
      "engine; the other server is told by --vllm_engine_kwargs or --sglang_engine_kwargs");
  if (!upstream())
    model.check();
  else if (vllm_server_base_url.empty()) {
    require(!model.model.empty(), Fault::Usage, "--model is needed: ", infer_backend,
            " is started with it; for a server that runs already give --vllm_server_base_url");
    require(program_on_path(infer_backend).has_value(), Fault::Usage, "--infer_backend ", infer_backend,
            ": there is no '", infer_backend, "' on PATH. Install it (pip install ", infer_backend,
            "), give --vllm_server_base_url of one that runs, or use --infer_backend engine, which needs nothing else");
  }
  require(ssl_keyfile.empty() == ssl_certfile.empty(), Fault::Usage,
          "--ssl_keyfile and --ssl_certfile belong together");
  if (!api_keys.empty()) {
    require(!upstream() && copies() == 1, Fault::Usage,
            "--api_keys counts the tokens of one model that this process answers for: leave out --infer_backend and "
            "--data_parallel_size, or give one --api_key");
    KeyBook{api_keys};
  }
  if (!otlp_traces_endpoint.empty()) Traces::address(otlp_traces_endpoint);
  require(!api_key || !api_key->empty(), Fault::Usage, "--api_key is empty; leave it out to let everybody in");
}

int64_t DeployOptions::copies() const {
  if (upstream() || mesh.data_parallel_size > 1) return upstream() ? 1 : mesh.data_parallel_size;
  const auto plan = read_launch(process_environment());
  return plan && plan->nodes == 1 ? std::max<int64_t>(1, plan->ranks / mesh.ranks_of_copy()) : 1;
}

std::filesystem::path DeployOptions::ranks_dir() const {
  if (ranks() <= 1) return {};
  const auto copy = process_environment()(kCopyVariable);
  return std::filesystem::path("logs") / (local_time("%Y%m%d-%H%M%S") + (copy ? "-copy" + *copy : ""));
}

void DeployOptions::prepare_plan(OptionTable& v, int64_t devices) {
  mesh.prepare_plan(v, model, placement, quantise.any(), devices);
}

PlanSpec DeployOptions::plan_spec(const Json& config, const DeviceFacts& facts, int64_t devices) const {
  PlanSpec spec = inference_spec(model, engine, config, facts);
  spec.command = "deploy";
  hold_quantised(spec, config, quantise);
  mesh.lay_out(spec, devices);
  return spec;
}

void DeployOptions::rehearse(Rehearsal& r) const {
  if (upstream()) return;  // the other server knows what it needs
  if (!models.empty()) {
    for (const HouseModel& each : models_to_deploy(*this))
      r.right(each.name, str("about ", bytes_text(each.bytes), " while it is loaded"));
    return r.right("memory", str(bytes_text(memory_for_models(*this)), " for those that are loaded"));
  }
  const Json config = r.model(model.model);
  r.adapters(adapters.folders);
  r.tokenizer(model.model);
  if (prompt.use_chat_template) r.chat_template(prompt.chat_template, model.model);
  if (placement.placed()) return r.placement({model, placement, &engine, ""});
  r.plan(plan_spec(config, device_facts(model.device)));
}

std::string served_at(const DeployOptions& o, int port) {
  const bool all = o.host == "0.0.0.0" || o.host == "::" || o.host.empty(), v6 = o.host.find(':') != std::string::npos;
  const std::string host = all ? "127.0.0.1" : v6 ? "[" + o.host + "]" : o.host;
  return str(o.ssl_keyfile.empty() ? "http" : "https", "://", host, ":", port, "/v1");
}

namespace {
// "NAME and the adapters NAME, NAME"
std::string names_text(const std::vector<std::string>& models) {
  if (models.size() < 2) return join(models);
  const std::vector<std::string> adapters(models.begin() + 1, models.end());
  return models.front() + (adapters.size() == 1 ? " and the adapter " : " and the adapters ") + join(adapters);
}
}  // namespace

void say_who_may_ask(const DeployOptions& o) {
  const bool here_only = o.host == "localhost" || o.host == "::1" || o.host.starts_with("127.");
  if (here_only)
    log_info("only this machine reaches it; --host 0.0.0.0 --api_key SECRET lets others in");
  else if (o.asks_for_keys())
    log_info("other machines reach it (--host ", o.host, "); API key required");
  else
    log_warning("WHOEVER REACHES THIS MACHINE MAY USE THE SERVER: it listens at ", o.host,
                " and asks for no key. Give --api_key SECRET, or leave --host out to serve this machine alone");
}

void say_where_served(const DeployOptions& o, const std::vector<std::string>& models, int port) {
  const std::string api = served_at(o, port);
  log_info("serving ", names_text(models), " at ", api, o.asks_for_keys() ? " (API key required)" : "");
  say_who_may_ask(o);
  log_info("a page to chat on: ", api.substr(0, api.size() - 2));
}

HttpServerSpec http_server_spec(const DeployOptions& o) {
  HttpServerSpec s;
  s.host = o.host;
  s.port = static_cast<int>(o.port);
  s.tls_key = o.ssl_keyfile;
  s.tls_certificate = o.ssl_certfile;
  s.body_limit = o.max_body_mb << 20;
  s.max_connections = o.max_connections;
  return s;
}

namespace {
int run(const DeployOptions& options) {
  return !options.models.empty() ? deploy_models(options)
         : options.upstream()    ? deploy_upstream(options)
         : options.copies() > 1  ? deploy_copies(options)
                                 : run_heavy("deploy", &options);
}
const RegisterCommand<DeployOptions> deploy_command(
    {.name = "deploy",
     .group = "Run",
     .summary = "serve a model over HTTP, as OpenAI's and Anthropic's APIs",
     .examples = {"deploy --model DIR", "deploy --model DIR --port 9000 --api_key SECRET --max_num_seqs 64",
                  "deploy --models DIR --models_memory_gb 16",
                  "deploy --model DIR --adapters legal=out/v0-.../checkpoint-100 poems=out/v1-.../checkpoint-80"}},
    run);
}  // namespace

}  // namespace apus
