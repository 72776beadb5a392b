// SPDX-License-Identifier: Apache-2.0
// The file of a tower that sees, beside that of its text: settings, sources, and whether a reader gets the same.
#include <algorithm>

#include "base/error.h"
#include "checkpoint/gguf_settings.h"
#include "gguf/import.h"
#include "gguf/import_tower.h"
#include "media/processor.h"
#include "models/spec/family.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

void add_pixels(GgufSettingsWriter& out, const Json& preprocessor) {
  for (const auto& [key, usual] : {std::pair{"image_mean", std::vector<double>{0.48145466, 0.4578275, 0.40821073}},
                                   {"image_std", std::vector<double>{0.26862954, 0.26130258, 0.27577711}}})
    out.own(std::string("vision.") + key,
            GgufValue::list(GgufKind::F32, preprocessor.is_object() ? preprocessor.value(key, usual) : usual));
  const Json size = preprocessor.is_object() ? preprocessor.value("size", Json::object()) : Json::object();
  if (size.is_object() && size.contains("longest_edge") && size["longest_edge"].is_number_integer())
    out.whole("vision.preproc_image_size", size["longest_edge"].get<int64_t>());
}

// What both say of the tower must be one thing.
void refuse_what_is_lost(const GgufSettings& settings, const GgufTowerSettings& tower, const std::string& where) {
  GgufHeader text = planned_header(settings.all, settings.sources, where);
  text.factors_of = settings.factors;
  const GgufHeader of_tower = planned_header(tower.all, tower.sources, where);
  const bool own = !settings.seeing->tower.only_written;
  const GgufTowerFamily reader = own ? *settings.seeing : tower_of_files(text, of_tower);
  const Json back = config_of_tower(text, of_tower, reader, config_of_gguf(text, settings.family));
  for (const auto& [key, value] : back["vision_config"].items())
    if (const auto said = tower.vision.find(key); own && said != tower.vision.end())
      require(*said == value, Fault::Model, where, ": config.json: vision_config: ", key, " is ", said->dump(),
              ", and a GGUF file of this family means ", value.dump());
  refuse_what_is_lost(settings, describe_model(settings.whole), describe_model(back), where);
}

// A token's row of the text's table (GgufTower::row).
void add_row(GgufTowerSettings& tower, const GgufSettings& settings, const std::string& where) {
  const auto& [token, name] = settings.seeing->tower.row;
  if (token.empty()) return;
  const auto tokens = std::find_if(settings.all.begin(), settings.all.end(),
                                   [](const auto& each) { return each.first == "tokenizer.ggml.tokens"; });
  require(tokens != settings.all.end(), Fault::Model, where, ": there is no tokenizer");
  const auto& all = std::get<GgufValue::Strings>(tokens->second.held);
  const auto at = std::find(all.begin(), all.end(), token);
  require(at != all.end(), Fault::Model, where, ": its tokenizer lacks ", token, ", which the tower's file needs");
  for (const GgufSource& source : settings.sources)
    if (source.tensor.name == "token_embd.weight")
      tower.sources.push_back({{name, GgmlType::F32, {source.tensor.shape.back()}}, source.from, {}, at - all.begin()});
}

}  // namespace

GgufTowerSettings gguf_tower_settings(const GgufSettings& settings, const fs::path& folder, GgmlType type,
                                      const std::string& name) {
  const GgufTower& tower = settings.seeing->tower;
  GgufTowerSettings out;
  out.vision = settings.whole.value("vision_config", Json::object());
  const GgufForm form = form_of_tower(tower, out.vision);
  GgufSettingsWriter writer(form.architecture);
  for (const auto& [key, text] : {std::pair{"general.architecture", form.architecture},
                                  {"general.type", std::string("mmproj")},
                                  {"general.name", name},
                                  {"clip.projector_type", tower.projector}})
    writer.plain(key, GgufValue::text(text));
  constexpr int64_t kF16 = 1, kBF16 = 32;  // as files number them; 0: F32
  writer.plain("general.file_type", GgufValue::u32(type == GgmlType::BF16 ? kBF16 : type == GgmlType::F16 ? kF16 : 0));
  writer.plain("general.quantization_version", GgufValue::u32(2));
  writer.own("has_vision_encoder", GgufValue::flag(true));
  writer.whole("vision.projection_dim", settings.sizes.hidden);
  add_pixels(writer, preprocessor_in(folder));
  for (const GgufKey& key : form.keys) write_key(out.vision, key, writer);
  writer.number("vision.attention.layer_norm_epsilon", out.vision.value("layer_norm_eps", 1e-6));
  if (tower.write) tower.write(settings.whole, writer);
  out.all = std::move(writer.all);
  const GgufHeader said = planned_header(out.all, {}, folder.string());
  out.sizes = sizes_of_tower(said, out.vision);
  out.sources = sources_of_tower(settings.of_tower, form, out.sizes);
  add_row(out, settings, folder.string());
  out.sizes.config = nullptr;  // the caller's copy of vision_config is another object
  for (GgufSource& source : out.sources) source.tensor.type = source.tensor.shape.size() == 2 ? type : GgmlType::F32;
  refuse_what_is_lost(settings, out, folder.string());
  return out;
}

}  // namespace apus
