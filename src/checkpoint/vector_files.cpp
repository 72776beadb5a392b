// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/vector_files.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/nearest.h"

namespace apus {
namespace fs = std::filesystem;
namespace {

constexpr const char *kModules = "modules.json", *kPooling = "1_Pooling",
                     *kPrompts = "config_sentence_transformers.json";
constexpr const char* kPackage = "sentence_transformers.models.";

Json json_of_file(const fs::path& file) { return parse_json(read_file(file, 1 << 20), file.string(), Fault::Model); }

Json module_json(int64_t place, const std::string& path, const std::string& type) {
  return {{"idx", place}, {"name", std::to_string(place)}, {"path", path}, {"type", kPackage + type}};
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

// Older files say it by flags, of which several may hold; newer ones by a word, or a list of them.
Pooling read_pooling(const fs::path& file) {
  const Json said = json_of_file(file);
  std::vector<Pooling> meant;
  const auto mode = said.find("pooling_mode");
  for (const Pooling each : all_poolings()) {
    const std::string key = pooling_key(each), word = key.substr(std::string("pooling_mode_").size());
    const auto names = [&](const Json& name) {
      const std::string text = name.is_string() ? name.get<std::string>() : "";
      return word == text || word == text + "_token" || word == text + "_tokens";
    };
    const bool listed =
        mode != said.end() && (names(*mode) || (mode->is_array() && mode->size() == 1 && names((*mode)[0])));
    const auto flag = said.find(key);
    if (listed || (flag != said.end() && flag->is_boolean() && flag->get<bool>())) meant.push_back(each);
  }
  require(meant.size() == 1, Fault::Model, file.string(), ": one way to pool is needed, the file asks for ",
          meant.empty() ? "none that is known" : "several, one behind the other", "; known: ", join(pooling_names()));
  const auto with_prompt = said.find("include_prompt");
  require(with_prompt == said.end() || *with_prompt != false, Fault::Model, file.string(),
          ": include_prompt false, which leaves a prompt's tokens out of the mean, is not known");
  return meant.front();
}

VectorLayer read_layer(const fs::path& dir, const std::string& folder) {
  const fs::path file = dir / folder / "config.json";
  const Json said = json_of_file(file);
  VectorLayer layer{.folder = folder,
                    .in = said.value("in_features", int64_t{0}),
                    .out = said.value("out_features", int64_t{0}),
                    .bias = said.value("bias", true)};
  const std::string act = said.value("activation_function", "torch.nn.modules.activation.Tanh");
  static const std::map<std::string, std::string> known = {
      {"Tanh", "tanh"}, {"Identity", "identity"}, {"GELU", "gelu"}, {"ReLU", "relu"}, {"SiLU", "silu"}};
  const auto found = known.find(act.substr(act.rfind('.') + 1));
  require(found != known.end(), Fault::Model, file.string(), ": activation_function ", act,
          " is not known; known are Tanh, Identity, GELU, ReLU, SiLU");
  require(layer.in > 0 && layer.out > 0, Fault::Model, file.string(), ": in_features and out_features are needed");
  layer.act = found->second;
  return layer;
}

void read_prompts(const fs::path& dir, VectorForm& form) {
  if (!fs::exists(dir / kPrompts)) return;
  const Json said = json_of_file(dir / kPrompts);
  const auto prompts = said.find("prompts");
  if (prompts != said.end() && prompts->is_object())
    for (const auto& [name, text] : prompts->items())
      if (text.is_string()) form.prompts[name] = text.get<std::string>();
  form.usual_prompt = text_at(said, "default_prompt_name");
  require(form.usual_prompt.empty() || form.prompts.count(form.usual_prompt), Fault::Model, (dir / kPrompts).string(),
          ": default_prompt_name '", form.usual_prompt, "' is not among its prompts");
}

}  // namespace

void write_vector_files(const fs::path& dir, const VectorForm& form) {
  require(form.layers.empty(), Fault::Bug, "layers behind the pooling are not written");
  make_writable_dir(dir / kPooling), make_writable_dir(dir / "2_Normalize");
  const Json modules = {module_json(0, "", "Transformer"), module_json(1, kPooling, "Pooling"),
                        module_json(2, "2_Normalize", "Normalize")};
  Json pooling = {{"word_embedding_dimension", form.width}, {"include_prompt", true}};
  for (const Pooling each : all_poolings()) pooling[pooling_key(each)] = each == form.pooling;
  write_file_atomic(dir / kModules, modules.dump(2) + "\n");
  write_file_atomic(dir / kPooling / "config.json", pooling.dump(2) + "\n");
  const Json usual = form.usual_prompt.empty() ? Json() : Json(form.usual_prompt);
  write_file_atomic(dir / kPrompts,
                    Json({{"prompts", Json(form.prompts)}, {"default_prompt_name", usual}}).dump(2) + "\n");
}

std::optional<VectorForm> read_vector_files(const fs::path& dir) {
  if (!fs::exists(dir / kModules)) return std::nullopt;
  VectorForm form{.normalised = false};
  bool pooled = false;
  for (const Json& module : json_of_file(dir / kModules)) {
    const std::string type = text_at(module, "type"), kind = type.substr(type.rfind('.') + 1);
    const std::string folder = text_at(module, "path");
    if (kind == "Pooling") {
      const Json said = json_of_file(dir / folder / "config.json");
      form.pooling = read_pooling(dir / folder / "config.json"), pooled = true;
      form.width = said.value("word_embedding_dimension", said.value("embedding_dimension", int64_t{0}));
    } else if (kind == "Dense") {
      require(pooled, Fault::Model, (dir / kModules).string(), ": a Dense before the Pooling is not known");
      form.layers.push_back(read_layer(dir, folder));
    } else {
      require(kind == "Transformer" || kind == "Normalize", Fault::Model, (dir / kModules).string(), ": a module ",
              type, " is not known; known are Transformer, Pooling, Dense and Normalize");
      form.normalised |= kind == "Normalize";
    }
  }
  if (!pooled) form.normalised = true;  // the file of a folder that says no more
  read_prompts(dir, form);
  return form;
}

}  // namespace apus
