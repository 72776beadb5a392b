// SPDX-License-Identifier: Apache-2.0
#include "gguf/form.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/nearest.h"
#include "base/registry.h"

namespace apus {

namespace {

std::vector<std::string> names_of(std::string GgufFamily::*type, std::string GgufForm::*architecture) {
  std::vector<std::string> out;
  for (const auto& [name, family] : Registry<GgufFamily>::of().all())
    out.push_back(architecture ? family.form.*architecture : family.*type);
  for (const auto& [name, family] : Registry<GgufTowerFamily>::of().all())
    out.push_back(architecture ? family.tower.architecture : family.model_type);
  std::erase(out, "");
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

GgufFamily as_written(GgufFamily family, const std::string& architecture) {
  family.form.architecture = architecture;
  return family;
}

// Of one that sees beside any text: with this one.
GgufTowerFamily with_text(GgufTowerFamily family, const std::string& model_type) {
  GgufTower& tower = family.tower;
  if (tower.architecture.empty() || model_type != tower.text)
    tower.architecture = family_of_model_type(model_type, family.model_type).form.architecture;
  tower.text = model_type;
  return family;
}

// The model_type of a part of config.json.
std::string type_of_part(const Json& config, const std::string& part, const std::string& unsaid) {
  const auto found = config.find(part);
  if (found == config.end() || !found->is_object()) return unsaid;
  const auto type = found->find("model_type");
  return type != found->end() && type->is_string() ? type->get<std::string>() : unsaid;
}

}  // namespace

double shortest_f32(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(value));
  double out = value;
  std::from_chars(text, end.ptr, out);
  return out;
}

int64_t GgufSizes::of(const char* key, int64_t unsaid) const {
  const auto found = config ? config->find(key) : Json::const_iterator();
  return config && found != config->end() && found->is_number() ? found->get<int64_t>() : unsaid;
}

GgufSizes GgufSizes::of_config(const Json& config) {
  return {config["num_hidden_layers"].get<int64_t>(),
          config["hidden_size"].get<int64_t>(),
          config["num_attention_heads"].get<int64_t>(),
          config["num_key_value_heads"].get<int64_t>(),
          config["head_dim"].get<int64_t>(),
          &config};
}

int64_t GgufSays::needed(const char* name) const {
  const auto found = integer(name);
  require(found.has_value(), Fault::Model, header_.where, ": '", key(name), "' is missing");
  return *found;
}

std::optional<int64_t> GgufSays::integer(const char* name) const {
  const std::vector<int64_t> all = integers(name);
  return all.empty() ? std::nullopt : std::optional(*std::max_element(all.begin(), all.end()));
}

std::optional<double> GgufSays::number(const char* name) const {
  const auto found = header_.number(key(name));
  return found ? std::optional(shortest_f32(*found)) : std::nullopt;
}

std::optional<bool> GgufSays::flag(const char* name) const { return header_.flag(key(name)); }
std::string GgufSays::text(const char* name) const { return header_.text(key(name)); }

std::vector<int64_t> GgufSays::integers(const char* name) const {
  const GgufValue* value = header_.find(key(name));
  if (!value) return {};
  if (value->kind == GgufKind::Array) return *header_.integers(key(name));
  return {*header_.integer(key(name))};
}

std::vector<double> GgufSays::numbers(const char* name) const {
  const GgufValue* value = header_.find(key(name));
  if (!value) return {};
  std::vector<double> all =
      value->kind == GgufKind::Array ? *header_.numbers(key(name)) : std::vector<double>{*header_.number(key(name))};
  for (double& each : all) each = shortest_f32(each);
  return all;
}

const GgufTensor* GgufSays::tensor(const std::string& name) const {
  for (const GgufTensor& t : header_.tensors)
    if (t.name == name) return &t;
  return nullptr;
}

std::vector<bool> GgufSays::layers_with(const std::string& name) const {
  const int64_t ahead = std::clamp<int64_t>(integer("nextn_predict_layers").value_or(0), 0, 4096);
  std::vector<bool> out(
      static_cast<size_t>(std::clamp<int64_t>(std::max<int64_t>(0, needed("block_count")) - ahead, 0, 4096)));
  for (size_t i = 0; i < out.size(); ++i) out[i] = tensor(str("blk.", i, ".", name)) != nullptr;
  return out;
}

void GgufSettingsWriter::own(const std::string& name, GgufValue value) {
  for (auto& [key, held] : all)
    if (key == begin_ + name) return void(held = std::move(value));
  all.emplace_back(begin_ + name, std::move(value));
}

void GgufSettingsWriter::flags(const std::string& name, const std::vector<bool>& values) {
  own(name, GgufValue::list(GgufKind::Bool, GgufValue::Integers(values.begin(), values.end())));
}

void GgufSettingsWriter::drop(const std::string& name) {
  std::erase_if(all, [&](const auto& each) { return each.first == begin_ + name; });
}

bool GgufSettingsWriter::says(const std::string& name) const {
  return std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.first == begin_ + name; });
}

void register_gguf(const std::string& model_type, const std::string& class_name, const GgufForm& form) {
  if (!form.architecture.empty()) Registry<GgufFamily>::of().add(model_type, {model_type, class_name, form});
}

void register_gguf_tower(const std::string& model_type, const std::string& class_name, const GgufTower& tower) {
  if (tower.projector.empty()) return;
  GgufTower held = tower;
  held.form.architecture = "clip", held.form.file_layers = "v.blk.", held.form.language = false;
  Registry<GgufTowerFamily>::of().add(model_type, {model_type, class_name, std::move(held)});
}

GgufFamily GgufTowerFamily::text(bool alone) const {
  GgufFamily family = family_of_model_type(tower.text, "");
  auto& names = family.form.names;
  if (!alone) names.insert(names.begin(), tower.text_names.begin(), tower.text_names.end());
  family.form.architecture = tower.architecture, family.form.claims = nullptr;
  return family;
}

std::optional<GgufTowerFamily> tower_of_config(const Json& config) {
  const GgufTowerFamily* found = Registry<GgufTowerFamily>::of().find(config.value("model_type", ""));
  if (!found) return std::nullopt;
  // Of several towers that the family may have, this one's.
  const std::string tower = type_of_part(found->tower.says, "vision_config", "");
  if (!tower.empty() && type_of_part(config, "vision_config", tower) != tower) return std::nullopt;
  if (!found->tower.any_text) return *found;
  const std::string text = type_of_part(config, found->tower.part, found->tower.text);
  return Registry<GgufFamily>::of().find(text) ? std::optional(with_text(*found, text)) : std::nullopt;
}

GgufTowerFamily tower_of_files(const GgufHeader& text, const GgufHeader& tower) {
  const std::string architecture = text.text("general.architecture"), of_tower = tower.text("general.architecture"),
                    projector = tower.text("clip.vision.projector_type", tower.text("clip.projector_type"));
  require(of_tower == "clip", Fault::Model, tower.where, ": its architecture is '", of_tower.substr(0, 100),
          "', where the file of a tower that sees has 'clip'");
  std::vector<std::string> known;
  const GgufTowerFamily* of_any = nullptr;
  for (const auto& [name, family] : Registry<GgufTowerFamily>::of().all()) {
    const GgufTower& form = family.tower;
    known.push_back(form.projector + (form.architecture.empty() ? "" : " of " + form.architecture));
    if (form.projector != projector || form.only_written) continue;
    if (form.architecture == architecture)
      return form.any_text ? with_text(family, family_of_file(text).model_type) : family;
    if (form.architecture.empty()) of_any = &family;
  }
  if (of_any) return with_text(*of_any, family_of_file(text).model_type);
  fail(Fault::Model, tower.where, ": a tower of the kind '", projector.substr(0, 100), "' for a text model '",
       architecture.substr(0, 100), "' is not read; these are: ", join(known),
       ". Move the file away to use the text model alone, or give the HuggingFace folder");
}

GgufFamily family_of_file(const GgufHeader& header) {
  const std::string architecture = header.text("general.architecture");
  require(!architecture.empty(), Fault::Model, header.where, ": 'general.architecture' is missing: no language model");
  const GgufSays says(header, architecture);
  const GgufFamily* usual = nullptr;
  for (const auto& [name, family] : Registry<GgufFamily>::of().all()) {
    if (family.form.architecture != architecture && family.form.with_experts != architecture) continue;
    if (family.form.claims && family.form.claims(says)) return as_written(family, architecture);
    if (!family.form.claims && !usual) usual = &family;
  }
  if (usual) return as_written(*usual, architecture);
  for (const auto& [name, family] : Registry<GgufTowerFamily>::of().all())
    if (family.tower.architecture == architecture) return family.text(/*alone=*/true);
  const auto known = gguf_architectures();
  const auto near = nearest(architecture, known);
  fail(Fault::Model, header.where, ": the architecture '", architecture.substr(0, 100), "' is not read from GGUF files",
       near.empty() ? "" : "; nearest: " + join(near), "; these are: ", join(known),
       ". Other models are read as HuggingFace folders");
}

const GgufFamily& family_of_model_type(const std::string& model_type, const std::string& where) {
  if (const GgufFamily* family = Registry<GgufFamily>::of().find(model_type)) return *family;
  fail(Fault::Model, where, ": models of type '", model_type,
       "' are not written as GGUF; these are: ", join(names_of(&GgufFamily::model_type, nullptr)));
}

std::vector<std::string> gguf_architectures() { return names_of(nullptr, &GgufForm::architecture); }

}  // namespace apus
