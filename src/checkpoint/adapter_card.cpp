// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_card.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {
namespace {

// A list of names, or the expression that stands for one.
std::string names(const Json& value) {
  return value.is_array() ? join(value.get<std::vector<std::string>>())
                          : "`" + (value.is_string() ? value.get<std::string>() : "") + "`";
}

// "Rank 8, alpha 32".
std::string size_of(const LoraConfig& c) {
  if (c.kind == "boft" && c.boft.block_size > 0) return str("Blocks of ", c.boft.block_size);
  if (c.kind == "boft") return str(c.boft.block_num, " blocks");
  if (c.kind == "ia3") return "A factor for each number";
  if (c.kind == "ln_tuning") return "The weights of norms";
  if (c.kind == "prompt_tuning") return str(c.prompt.words, " words before every text");
  if (c.kind == "fourierft") return str(c.fourier.frequencies, " frequencies");
  return str("Rank ", c.r, c.kind == "bone" || c.kind == "vera" ? "" : str(", alpha ", Json(c.alpha).dump()));
}

}  // namespace

std::string adapter_card(const LoraConfig& config) {
  const Json c = adapter_config_json(config);
  const std::string base = c.at("base_model_name_or_path");
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };  // a text of JSON is one of YAML
  std::string out = str("---\nbase_model: ", quoted(base), "\nlibrary_name: peft\n");
  if (c.at("task_type") == "CAUSAL_LM") out += "pipeline_tag: text-generation\n";
  out += str("tags:\n- ", quoted("base_model:adapter:" + base), "\n- ", config.kind, "\n- transformers\n---\n\n");
  out += str("# ", adapter_title(config), " adapter\n\nBase model: ", base, "\n\n", size_of(config));
  if (c.contains("target_modules")) out += ", on " + names(c.at("target_modules"));
  if (c.at("modules_to_save").is_array()) out += "; trained whole: " + names(c.at("modules_to_save"));
  return out + str(".\n\nIt answers with `apus infer --adapters <this folder>`, and loads with PEFT's "
                   "`PeftModel.from_pretrained`.\n\n### Framework versions\n\n- PEFT ",
                   c.at("peft_version").get<std::string>(), "\n");
}

}  // namespace apus
