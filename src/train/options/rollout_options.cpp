// SPDX-License-Identifier: Apache-2.0
#include "train/options/rollout_options.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

void RolloutServerOptions::fields(OptionTable& v) {
  const auto& known = v.options();
  if (std::any_of(known.begin(), known.end(), [](const auto& option) { return option->name == "stop_words"; })) {
    Option& option = v.at("stop_words");  // the command's, of answers that are not rolled out
    option.target = OptionTarget(&stop_words), option.no_effect.clear(),
    option.help = "texts that end an answer that is rolled out";
    option.noted();
  } else {
    v("stop_words", stop_words, "texts that end an answer that is rolled out").noted();
  }
  v.group("Rollout servers");
  v("use_vllm", use_vllm, "answers are rolled out by an engine, which they always are");
  v("vllm_mode", vllm_mode, "colocate: the engine in this process; server: apus rollout, at the addresses given")
      .choices({"colocate", "server"})
      .shown_default("server when an address is given");
  v("vllm_server_base_url", vllm_server_base_url, "addresses of apus rollout servers: http://host:8000")
      .alias("rollout_url");
  v("vllm_server_host", vllm_server_host, "hosts of the servers that roll out, instead of --vllm_server_base_url");
  v("vllm_server_port", vllm_server_port, "their ports, one for each --vllm_server_host").shown_default("8000");
  v("vllm_server_timeout", vllm_server_timeout, "seconds that a server may be away before it counts as lost")
      .at_least(1);
  v("vllm_max_num_seqs", vllm_max_num_seqs,
    "answers that a process draws at once; fewer take less memory and more time, and are the same answers")
      .at_least(1);
  v.no_effect(
      {"vllm_gpu_memory_utilization", "vllm_enforce_eager", "vllm_enable_prefix_caching", "vllm_enable_lora",
       "vllm_max_lora_rank", "vllm_limit_mm_per_prompt", "vllm_mm_processor_cache_gb", "vllm_disable_custom_all_reduce",
       "vllm_disable_cascade_attn", "vllm_use_async_engine", "sleep_level", "offload_model", "offload_optimizer",
       "move_model_batches", "ds3_gather_for_generation", "enable_flattened_weight_sync"},
      "the engine works on the trainer's own weights, and its cache is given back between rounds");
  v.no_effect({"vllm_tensor_parallel_size", "vllm_pipeline_parallel_size", "vllm_data_parallel_size",
               "vllm_enable_expert_parallel"},
              "each process answers its own share of the questions, with the model that it trains");
  v.refuse({"vllm_quantization", "vllm_speculative_config", "vllm_engine_kwargs"},
           "the engine answers with the very weights that are trained, a token at a time");
  v.no_effect({"vllm_server_group_port"}, "weights are sent to the server's own address");
  v.no_effect({"vllm_server_pass_dataset"}, "rewards and environments, which see all columns, are asked here");
}

std::vector<std::string> RolloutServerOptions::server_urls() const {
  if (vllm_mode == "colocate") return {};
  std::vector<std::string> out = vllm_server_base_url;
  for (size_t i = 0; i < vllm_server_host.size(); ++i) {
    const std::string port = i < vllm_server_port.size() ? vllm_server_port[i] : "8000", host = vllm_server_host[i];
    out.push_back(host.find("://") != std::string::npos
                      ? host + ":" + port
                      : str("http://", host.find(':') == std::string::npos ? host : "[" + host + "]", ":", port));
  }
  for (std::string& url : out)
    while (!url.empty() && url.back() == '/') url.pop_back();
  return out;
}

void RolloutServerOptions::check() const {
  const bool addressed = !vllm_server_base_url.empty() || !vllm_server_host.empty();
  require(vllm_mode != "server" || addressed, Fault::Usage,
          "--vllm_mode server: where is it? --vllm_server_host HOST --vllm_server_port PORT, or "
          "--vllm_server_base_url http://HOST:PORT; `apus rollout --model DIR` starts one");
  require(vllm_mode != "colocate" || !addressed, Fault::Usage,
          "--vllm_mode colocate rolls out in this process, and an address of a server is given: leave one of them out");
  require(vllm_server_port.size() <= 1 || vllm_server_port.size() == vllm_server_host.size(), Fault::Usage,
          "--vllm_server_port has ", vllm_server_port.size(), " ports for ", vllm_server_host.size(),
          " hosts of --vllm_server_host: give one for each");
  for (const std::string& port : vllm_server_port)
    require(!port.empty() && std::all_of(port.begin(), port.end(), [](unsigned char c) { return std::isdigit(c); }),
            Fault::Usage, "--vllm_server_port ", port, ": a number is wanted");
  for (const std::string& url : vllm_server_base_url)
    require(url.rfind("http://", 0) == 0 || url.rfind("https://", 0) == 0, Fault::Usage, "--vllm_server_base_url ", url,
            ": an address is wanted, e.g. http://127.0.0.1:8000");
}

}  // namespace apus
