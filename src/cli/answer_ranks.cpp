// SPDX-License-Identifier: Apache-2.0
#include "cli/answer_ranks.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/shared_parts.h"
#include "cli/task_options.h"

namespace apus {

void RankOptions::fields(OptionTable& v) {
  v.group("Processes");
  v("tensor_model_parallel_size", tensor_model_parallel_size,
    "so many processes share out the model's matrices: heads of attention and their cache, feed-forward, vocabulary; "
    "they are started where nobody has")
      .alias("tensor_parallel_size")
      .at_least(1);
  v("expert_model_parallel_size", expert_model_parallel_size,
    "so many processes share out the experts of each layer; both together: their product")
      .at_least(1);
  for (const auto& option : v.options())
    for (const char* name : {"vllm_tensor_parallel_size", "sglang_tp_size", "lmdeploy_tp"})
      if (option->name == name && std::get_if<std::monostate>(&option->target))
        option->honoured(&foreign_tensor, "--tensor_model_parallel_size, where the model can be cut").at_least(1);
  if (std::any_of(v.options().begin(), v.options().end(), [](const auto& o) { return o->name == "ddp_timeout"; }))
    v.at("ddp_timeout").honoured(&ddp_timeout, "several processes: seconds that one waits for another").above(0);
}

void RankOptions::copies_field(OptionTable& v, const std::string& what_they_do) {
  v("data_parallel_size", data_parallel_size, "copies of the model, each with processes of its own: " + what_they_do)
      .at_least(1)
      .at_most(1024);
}

void RankOptions::resolve(const OptionTable& v) {
  if (!foreign_tensor) return;
  require(!v.given("tensor_model_parallel_size") || *foreign_tensor == tensor_model_parallel_size, Fault::Usage,
          "--tensor_model_parallel_size ", tensor_model_parallel_size, " and another program's name for it with ",
          *foreign_tensor, ": give one of them");
  if (!v.given("tensor_model_parallel_size")) tensor_model_parallel_size = *foreign_tensor;
}

void RankOptions::check(const ModelOptions& model, const PlacementOptions& placement, bool quantised) const {
  if (!shares_parts()) return;
  const std::string flag =
      tensor_model_parallel_size > 1 ? "--tensor_model_parallel_size" : "--expert_model_parallel_size";
  require(!placement.placed(), Fault::Usage, flag,
          " gives each process its part on one device, and --device_map lays layers over the devices of one process: "
          "give one of them");
  require(gives_words(model), Fault::Usage, flag,
          " is for models that give words, and this one is asked for --task_type ", model.task_type, ": leave it out");
  require(!quantised, Fault::Usage, "--quant_method holds whole matrices: leave it out with ", flag);
}

void RankOptions::settle(const ModelOptions& model) {
  if (!shares_parts()) return;
  const std::filesystem::path file = std::filesystem::path(model.model) / "config.json";
  const Json config = parse_json(read_file(file, 16 << 20), file.string(), Fault::Model);
  std::string wrong = why_not({.tensor = tensor_model_parallel_size,
                               .experts = expert_model_parallel_size,
                               .row_sharers = tensor_model_parallel_size},
                              model_facts(config), model.model);
  if (wrong.empty() && config.contains("quantization_config"))
    wrong = str("matrices of ", model.model,
                " are held in few bits, as whole ones: leave out --tensor_model_parallel_size and "
                "--expert_model_parallel_size");
  if (wrong.empty()) return;
  require(foreign_tensor && expert_model_parallel_size == 1, Fault::Usage, wrong);
  log_warning(wrong, ". The engine answers on one device");
  tensor_model_parallel_size = 1;
}

}  // namespace apus
