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

}  // namespace

std::string adapter_card(const Json& c) {
  const std::string base = c.at("base_model_name_or_path");
  const auto quoted = [](const std::string& text) { return Json(text).dump(); };  // a text of JSON is one of YAML
  std::string out = str("---\nbase_model: ", quoted(base), "\nlibrary_name: peft\n");
  if (c.at("task_type") == "CAUSAL_LM") out += "pipeline_tag: text-generation\n";
  out += str("tags:\n- ", quoted("base_model:adapter:" + base), "\n- lora\n- transformers\n---\n\n");
  out += str("# ", c.at("use_dora") == true ? "DoRA" : c.at("use_rslora") == true ? "rsLoRA" : "LoRA", " adapter\n\n");
  out += str("Base model: ", base, "\n\nRank ", c.at("r").dump(), ", alpha ", c.at("lora_alpha").dump(), ", on ",
             names(c.at("target_modules")));
  if (c.at("modules_to_save").is_array()) out += "; trained whole: " + names(c.at("modules_to_save"));
  return out + str(".\n\nIt answers with `apus infer --adapters <this folder>`, and loads with PEFT's "
                   "`PeftModel.from_pretrained`.\n\n### Framework versions\n\n- PEFT ",
                   c.at("peft_version").get<std::string>(), "\n");
}

}  // namespace apus
