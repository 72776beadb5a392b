// SPDX-License-Identifier: Apache-2.0
#include "run/train_result.h"

#include "base/log.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// As one would type it here.
std::string typed(const fs::path& path) {
  const std::string near = path.lexically_proximate(fs::current_path()).string();
  return near.starts_with("..") ? path.string() : near;
}

// What one does with a checkpoint.
void say_next(const TrainRun& o, const std::string& checkpoint) {
  const bool words = algorithm_info(o.algorithm).head == Head::Vocab;
  const char* const rows = words ? "" : " --val_dataset rows.jsonl";
  const std::string flag = o.tuner.lora() ? " --adapters " : " --model ";
  log_info("next: apus infer", flag, checkpoint, rows);
  log_info("next: apus deploy", flag, checkpoint);
  if (o.tuner.lora() && adapter_abilities(o.tuner.tuner_type).merges)
    log_info("next: apus merge-lora --adapters ", checkpoint);
  if (!o.tuner.lora() && words) log_info("next: apus export --model ", checkpoint, " --to_gguf q4_k_m");
}

}  // namespace

Json result_json(const TrainResult& r, const TrainData& data, const std::string& parameters,
                 const std::string& best_name) {
  const auto path = [](const std::optional<fs::path>& p) { return p ? Json(p->string()) : Json(); };
  Json out = {{"model_parameter_info", parameters}, {"train_dataset", data.train_text}};
  if (data.eval) out["val_dataset"] = data.eval_text;
  out["last_model_checkpoint"] = path(r.last_checkpoint), out["best_model_checkpoint"] = path(r.best_checkpoint);
  out["best_metric"] = r.best_metric ? Json(*r.best_metric) : Json();
  out["metric_for_best_model"] = best_name;
  out["global_step"] = r.step, out["log_history"] = r.log_history, out["skipped_updates"] = r.bad_steps;
  out["memory"] = r.memory;
  return out;
}

void say_result(const TrainRun& o, const TrainResult& r, const RunLog& log) {
  log_info("last_model_checkpoint: ", r.last_checkpoint ? r.last_checkpoint->string() : "none was saved");
  if (r.best_checkpoint) log_info("best_model_checkpoint: ", r.best_checkpoint->string());
  log_info("images_dir: ", log.images_dir().string());
  std::error_code code;
  const bool best = r.best_checkpoint && fs::is_directory(*r.best_checkpoint, code);
  if (best || r.last_checkpoint) say_next(o, typed(best ? *r.best_checkpoint : *r.last_checkpoint));
}

}  // namespace apus
