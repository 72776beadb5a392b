// SPDX-License-Identifier: Apache-2.0
#include "cli/rollout.h"

#include "base/error.h"
#include "cli/command.h"
#include "cli/heavy.h"
#include "environment/plugin.h"

namespace apus {

void RolloutOptions::fields(OptionTable& v) {
  server.fields(v);
  for (const char* name : {"infer_backend", "use_installed_backend", "vllm_server_base_url", "vllm_engine_kwargs",
                           "sglang_engine_kwargs", "sglang_tp_size"})
    v.at(name).refused("the engine of this program rolls out, whose weights the trainer replaces");
  for (const char* name : {"vllm_tensor_parallel_size", "vllm_pipeline_parallel_size", "vllm_data_parallel_size"})
    v.at(name).idle_for(
        "the engine serves on one device; --device_map auto lays the model over several, and several "
        "servers share the answers of a trainer");
  for (const char* name : {"tensor_model_parallel_size", "expert_model_parallel_size", "data_parallel_size"})
    v.at(name).refused(
        "a trainer sends whole weights to one process: --device_map auto lays the model over several devices, and "
        "several servers share the answers of a trainer");
  v.at("api_keys").refused("one trainer asks, with --api_key");
  for (const char* name : {"models", "models_memory_gb", "models_most", "models_idle_minutes"})
    v.at(name).refused("a trainer brings the weights of one model: --model");
  environment.PluginOptions::fields(v);
  environment.fields(v);
}

void RolloutOptions::check() const {
  server.check();
  environment.check();
  check_plugins(environment, {}, &environment);
  require(server.model.task_type == "causal_lm" || server.model.task_type.empty(), Fault::Usage, "--task_type ",
          server.model.task_type, ": answers are rolled out by a model that gives words");
}

namespace {
int run(const RolloutOptions& options) { return run_heavy("rollout", &options); }
const RegisterCommand<RolloutOptions> rollout_command(
    {.name = "rollout",
     .group = "Run",
     .summary = "answer in place of a trainer's own engine, which sends the weights after each update",
     .examples = {"rollout --model DIR --port 8000",
                  "rollout --model DIR --environment calculator --max_turns 4 --host 127.0.0.1"}},
    run);
}  // namespace

}  // namespace apus
