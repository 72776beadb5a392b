// SPDX-License-Identifier: Apache-2.0
#include "cli/answer_ranks.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "cli/task_options.h"
#include "parallel/placement/device_map.h"
#include "plan/plan.h"

namespace apus {

void RankOptions::fields(OptionTable& v) {
  v.group("Processes");
  v("tensor_model_parallel_size", tensor_model_parallel_size,
    "so many processes share out the model's matrices: heads of attention and their cache, feed-forward, vocabulary; "
    "they are started where nobody has")
      .common()
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
      .common()
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

Combination RankOptions::combination(const ModelOptions& model, bool quantised) const {
  return {.asked = model.task_type.empty() ? "this command" : "--task_type " + model.task_type,
          .model_name = model.model,
          .gives_words = apus::gives_words(model),
          .tensor = tensor_model_parallel_size,
          .experts = expert_model_parallel_size,
          .quantised = quantised};
}

void RankOptions::check(const ModelOptions& model, const PlacementOptions& placement, bool quantised) const {
  if (!shares_parts()) return;
  require(!placement.placed(), Fault::Usage,
          "--tensor_model_parallel_size and --expert_model_parallel_size give each process its part on one device, and "
          "--device_map lays layers over the devices of one process: give one of them");
  require_possible(combination(model, quantised));
}

void RankOptions::prepare_plan(OptionTable& v, const ModelOptions& model, const PlacementOptions& placement,
                               bool quantised, int64_t devices) {
  resolve(v);
  check(model, placement, quantised);
  require(devices % ranks_of_copy() == 0, Fault::Usage, "a model in such parts needs ", ranks_of_copy(),
          " devices, or a multiple: give --devices ", ranks_of_copy());
  require(placement.max_memory.empty() && parse_device_map(placement.device_map).entries.empty(), Fault::Usage,
          "a plan spreads layers evenly over --devices; --dry_run true of infer, score and deploy says what lies where "
          "by a map of your own, or --max_memory");
}

void RankOptions::lay_out(PlanSpec& spec, int64_t devices) const {
  spec.train.devices = shares_parts() ? 1 : static_cast<int>(devices);  // of one copy's part
  if (shares_parts())
    spec.share = {.tensor = tensor_model_parallel_size, .experts = expert_model_parallel_size, .stages = {}};
}

void RankOptions::settle(const ModelOptions& model) {
  if (!shares_parts()) return;
  const std::filesystem::path file = std::filesystem::path(model.model) / "config.json";
  const ModelFacts facts = model_facts(parse_json(read_file(file, 16 << 20), file.string(), Fault::Model));
  Combination wanted = combination(model, facts.quantised);
  wanted.model = &facts;
  const std::vector<std::string> wrong = refusals(wanted);
  if (wrong.empty()) return;
  require(foreign_tensor && expert_model_parallel_size == 1, Fault::Usage, join(wrong, "\n"));
  log_warning(wrong.front(), ". The engine answers on one device");
  tensor_model_parallel_size = 1;
}

}  // namespace apus
