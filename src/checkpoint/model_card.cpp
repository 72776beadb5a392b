// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_card.h"

#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/nearest.h"
#include "checkpoint/file_names.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

constexpr const char* kTraining = "## Training";

// A file of the folder; null where there is none that can be read.
Json read_if_there(const fs::path& file) {
  std::error_code code;
  if (!fs::is_regular_file(file, code)) return {};
  return Json::parse(read_file(file, 64 << 20), nullptr, /*allow_exceptions=*/false);
}

std::string text_of(const Json& object, const char* name) {
  const auto it = object.find(name);
  return it == object.end() || it->is_null() ? "" : it->is_string() ? it->get<std::string>() : it->dump();
}

// A path of this machine is nobody else's business: its last part says enough. Of a hub's id both parts stay.
std::string public_name(const std::string& name) {
  const fs::path path = fs::path(name).lexically_normal();
  const bool here = path.is_absolute() || name.starts_with('.') || std::distance(path.begin(), path.end()) > 2;
  if (!here) return name;
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// The last of the log's entries that has it.
std::string last_figure(const Json& state, const char* name) {
  const auto history = state.find("log_history");
  if (history == state.end() || !history->is_array()) return "";
  for (auto it = history->rbegin(); it != history->rend(); ++it)
    if (it->is_object() && it->contains(name) && (*it)[name].is_number()) return (*it)[name].dump();
  return "";
}

std::string rows_of_settings(const Json& args) {
  std::string out;
  for (const auto& [name, label] :
       std::vector<std::pair<const char*, const char*>>{{"rlhf_type", "algorithm"},
                                                        {"task_type", "task"},
                                                        {"tuner_type", "tuner"},
                                                        {"lora_rank", "rank"},
                                                        {"lora_alpha", "alpha"},
                                                        {"learning_rate", "learning rate"},
                                                        {"lr_scheduler_type", "schedule"},
                                                        {"num_train_epochs", "epochs"},
                                                        {"per_device_train_batch_size", "rows of a micro-batch"},
                                                        {"gradient_accumulation_steps", "micro-batches of an update"},
                                                        {"max_length", "longest row in tokens"},
                                                        {"optim", "optimizer"},
                                                        {"torch_dtype", "number format"},
                                                        {"seed", "seed"}})
    if (const std::string value = text_of(args, name); !value.empty()) out += str("| ", label, " | ", value, " |\n");
  return out;
}

std::string rows_of_figures(const Json& state) {
  std::string out;
  if (const std::string steps = text_of(state, "global_step"); !steps.empty()) out += "| updates | " + steps + " |\n";
  for (const auto& [name, label] :
       std::vector<std::pair<const char*, const char*>>{{"loss", "training loss, at last"},
                                                        {"eval_loss", "validation loss, at last"},
                                                        {"token_acc", "training token accuracy, at last"},
                                                        {"eval_token_acc", "validation token accuracy, at last"},
                                                        {"reward", "mean reward, at last"},
                                                        {"rewards/margins", "reward margin, at last"}})
    if (const std::string value = last_figure(state, name); !value.empty())
      out += str("| ", label, " | ", value, " |\n");
  if (const std::string best = text_of(state, "best_metric"); !best.empty() && best != "null")
    out += "| best metric | " + best + " |\n";
  return out;
}

std::vector<std::string> datasets_of(const Json& args) {
  std::vector<std::string> out;
  if (const auto it = args.find("dataset"); it != args.end() && it->is_array())
    for (const Json& one : *it)
      if (one.is_string()) out.push_back(public_name(one.get<std::string>()));
  return out;
}

std::string training(const Json& args, const Json& state) {
  std::string out = str("\n", kTraining, "\n\nTrained with Apus ", text_of(args, "apus_version"));
  if (const auto datasets = datasets_of(args); !datasets.empty()) out += " on " + join(datasets);
  out += ".\n\n| | |\n| --- | --- |\n" + rows_of_settings(args);
  if (state.is_object()) out += rows_of_figures(state);
  return out;
}

std::string card_of_model(const std::string& base, const Json& args) {
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };  // a text of JSON is one of YAML
  std::string out = "---\nlibrary_name: transformers\n";
  if (!base.empty()) out += "base_model: " + quoted(base) + "\n";
  if (text_of(args, "task_type") == "causal_lm") out += "pipeline_tag: text-generation\n";
  out += "---\n\n# " + (base.empty() ? "A fine-tuned model" : base + ", fine-tuned") + "\n\n";
  if (!base.empty()) out += "Base model: " + base + "\n\n";
  return out + "It answers with `apus infer --model <this folder>`, and loads with transformers.\n";
}

}  // namespace

std::optional<std::string> card_of_folder(const fs::path& folder) {
  const Json args = read_if_there(folder / kArgumentsFile), state = read_if_there(folder / kTrainerStateFile);
  const Json adapter = read_if_there(folder / kAdapterConfigFile);
  const bool model = fs::exists(folder / kModelConfigFile);
  if (!args.is_object() || (!model && !adapter.is_object())) return std::nullopt;
  const fs::path own = folder / "README.md";
  const bool there = fs::exists(own);
  // An adapter's is made by this program with its weights; what somebody wrote into it stays.
  if (there && !adapter.is_object()) return std::nullopt;
  std::string card = there ? read_file(own, 1 << 20) : card_of_model(public_name(text_of(args, "model")), args);
  if (card.find(kTraining) != std::string::npos) return std::nullopt;
  const std::string base = adapter.is_object() ? text_of(adapter, "base_model_name_or_path") : "";
  if (const std::string shown = public_name(base); !base.empty() && shown != base)
    for (size_t at = card.find(base); at != std::string::npos; at = card.find(base, at + shown.size()))
      card.replace(at, base.size(), shown);
  return card + training(args, state);
}

}  // namespace apus
