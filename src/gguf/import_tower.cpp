// SPDX-License-Identifier: Apache-2.0
#include "gguf/import_tower.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

namespace {

constexpr const char *kUp = ".ffn_up.", *kDown = ".ffn_down.";

void add_tokens(Json& config, const GgufHeader& text, const GgufTower& tower) {
  const GgufValue::Strings* all = text.strings("tokenizer.ggml.tokens");
  for (const auto& [key, token] : tower.tokens) {
    const auto at = all ? std::find(all->begin(), all->end(), token) : GgufValue::Strings::const_iterator();
    require(all && at != all->end(), Fault::Model, text.where, ": its vocabulary lacks ", token,
            ", which stands for what the model sees");
    config[key] = at - all->begin();
  }
}

}  // namespace

Json config_of_tower(const GgufHeader& text_file, const GgufHeader& tower, const GgufTowerFamily& family, Json text) {
  const GgufTower& form = family.tower;
  const GgufSays clip(tower, "clip"), says(text_file, form.architecture);
  const int64_t gives = clip.needed("vision.projection_dim"), reads = text["hidden_size"].get<int64_t>();
  require(gives == reads, Fault::Model, tower.where, " gives rows of ", gives, " numbers, and the text model ",
          text_file.where, " reads ", reads, ": they are not of one model");
  if (const auto sections = says.integers("rope.dimension_sections"); sections.size() >= 3)
    text["rope_scaling"] = {{"rope_type", "default"},
                            {"mrope_section", std::vector<int64_t>(sections.begin(), sections.begin() + 3)}};
  Json config = text;
  if (!form.part.empty()) {
    if (!form.any_text) text["model_type"] = form.part_type, text.erase("architectures");
    config = {{form.part, text}};
    for (const char* key : {"torch_dtype", "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"})
      if (text.contains(key)) config[key] = text[key];
  }
  config["model_type"] = family.model_type;
  config["architectures"] = Json::array({family.class_name});
  config.merge_patch(form.says);
  Json& vision = config["vision_config"];
  if (vision.is_null()) vision = Json::object();
  for (const GgufKey& key : form.form.keys) take_key(vision, clip, key);
  add_tokens(config, text_file, form);
  if (form.read) form.read(clip, config);
  return config;
}

Json preprocessor_of_tower(const GgufHeader& tower, const GgufTower& form) {
  const GgufSays clip(tower, "clip");
  Json out = Json::object();
  for (const char* key : {"image_mean", "image_std"})
    if (const auto numbers = clip.numbers((std::string("vision.") + key).c_str()); !numbers.empty()) out[key] = numbers;
  // Of those that are cut into tiles: the longer side of all of it.
  if (const auto longest = clip.integer("vision.preproc_image_size")) {
    out["size"] = {{"longest_edge", *longest}};
    out["max_image_size"] = {{"longest_edge", clip.needed("vision.image_size")}};
  }
  if (form.read_pixels) form.read_pixels(clip, out);
  return out;
}

GgufSizes sizes_of_tower(const GgufHeader& tower, const Json& vision) {
  const GgufSays clip(tower, "clip");
  const int64_t width = clip.needed("vision.embedding_length"), heads = clip.needed("vision.attention.head_count");
  require(heads > 0 && width % heads == 0, Fault::Model, tower.where, ": ", width, " numbers are no ", heads, " heads");
  return {clip.needed("vision.block_count"), width, heads, heads, width / heads, &vision};
}

GgufForm form_of_tower(const GgufTower& tower, const Json& vision) {
  GgufForm form = tower.form;
  if (tower.further)
    for (GgufPair& pair : tower.further(vision)) form.names.push_back(std::move(pair));
  return form;
}

bool has_swapped_names(const GgufHeader& tower) {
  const GgufSays clip(tower, "clip");
  const GgufTensor* down = clip.tensor("v.blk.0.ffn_down.weight");
  const auto width = clip.integer("vision.embedding_length"), ffn = clip.integer("vision.feed_forward_length");
  return down && width != ffn && !down->shape.empty() && down->shape.back() == width;
}

std::string with_swapped_name(const std::string& name) {
  for (const auto& [from, to] : {std::pair{kUp, kDown}, {kDown, kUp}})
    if (const size_t at = name.find(from); at != std::string::npos)
      return name.substr(0, at) + to + name.substr(at + std::string_view(from).size());
  return name;
}

}  // namespace apus
