// SPDX-License-Identifier: Apache-2.0
// Llama 3.2 Vision: Llama 3.1 with layers among its own that read pictures, which a tower of two transformers makes of
// tiles on a canvas. One token stands for a picture.
#include <algorithm>

#include "base/error.h"
#include "models/spec/canvas_spec.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::mllama {

namespace {
constexpr int64_t kMoreWords = 8;  // rows of the embedding behind the vocabulary's

// The text part as Llama's own, with what its class in transformers takes where the file leaves it out.
Json text_of(const Config& c) {
  Json text = {{"vocab_size", 128256},        {"hidden_size", 4096},      {"num_hidden_layers", 40},
               {"num_attention_heads", 32},   {"num_key_value_heads", 8}, {"intermediate_size", 14336},
               {"rms_norm_eps", 1e-5},        {"rope_theta", 5e5},        {"max_position_embeddings", 131072},
               {"tie_word_embeddings", false}};
  text.update(part_of(c, "text_config").json());
  text["model_type"] = "llama";
  text.erase("head_dim"), text.erase("architectures");
  return text;
}

std::vector<int64_t> picture_layers(const Config& text, int64_t layers) {
  if (!text.find("cross_attention_layers")) return {3, 8, 13, 18, 23, 28, 33, 38};
  std::vector<int64_t> all = text.integers("cross_attention_layers");
  std::sort(all.begin(), all.end());
  require(!all.empty() && std::adjacent_find(all.begin(), all.end()) == all.end() && all.front() >= 0 &&
              all.back() < layers,
          Fault::Model, "config.json: text_config: cross_attention_layers must name some of the ", layers,
          " layers, each once");
  return all;
}

// Of layers that read pictures the cache holds nothing.
void use_pictures(const Config& text, DecoderSpec& spec) {
  spec.pictures = PictureLayers{.layers = picture_layers(text, spec.shape.layers)};
  for (const int64_t layer : spec.pictures->layers)
    require(layer < spec.shape.layers, Fault::Model, "config.json: text_config: layer ", layer,
            " would read pictures, and there are ", spec.shape.layers);
  for (int64_t i = 0; i < spec.shape.layers; ++i)
    spec.shape.cached.push_back({spec.looks_at_pictures(i) ? 0 : spec.shape.kv_heads, spec.shape.head_dim});
}

// As transformers writes it, and under the names that it has in memory since 4.52.
std::vector<DiskForm> forms() {
  return {{.renames = {{"model.language_model.", "language_model.model."},
                       {"lm_head.", "language_model.lm_head."},
                       {"model.vision_model.", "vision_model."},
                       {"model.multi_modal_projector.", "multi_modal_projector."}}},
          {}};
}

DecoderSpec read(const Config& c) {
  const Json text = text_of(c);
  DecoderSpec spec = read_language(Config(text), "");
  require(!c.flag("tie_word_embeddings", false) && !spec.tied, Fault::Model,
          "config.json: tie_word_embeddings true: the embedding has more rows than the head, they cannot be one");
  spec.backbone = "model.language_model", spec.more_words = kMoreWords;
  use_pictures(Config(text), spec);
  const CanvasSpec canvas = read_canvas(part_of(c, "vision_config"), spec.shape.hidden);
  spec.shape.picture_rows = canvas.rows();
  SeeingSpec seeing{.vision = vision_of(canvas)};
  seeing.image_token = c.integer(c.find("image_token_id") ? "image_token_id" : "image_token_index", 128256);
  require(seeing.image_token >= 0 && seeing.image_token < spec.shape.vocab + kMoreWords, Fault::Model,
          "config.json: image_token_index ", seeing.image_token, " must be one of the embedding's ",
          spec.shape.vocab + kMoreWords, " words");
  seeing.time = TimeRule::Text;
  seeing.language = {spec.backbone, spec.head_name}, seeing.tower = {canvas.name}, seeing.aligner = {canvas.projector};
  seeing.forms = forms();
  seeing.canvas = std::make_shared<const CanvasSpec>(canvas);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json text_says(const std::vector<int64_t>& picture_layers) {
  return {{"text_config",
           {{"model_type", "mllama_text_model"},
            {"rms_norm_eps", 1e-5},
            {"cross_attention_layers", picture_layers},
            {"rope_scaling",
             {{"rope_type", "llama3"},
              {"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_max_position_embeddings", 8192}}}}}};
}

std::vector<int64_t> every_fifth(int64_t layers) {
  std::vector<int64_t> all;
  for (int64_t i = 3; i < layers; i += 5) all.push_back(i);
  return all;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"llama3.2-11b-vision", 4096, 40, 32, 8, 0, 14336, 128256, 131072, 5e5, false, {}, text_says(every_fifth(40))},
    {"llama3.2-90b-vision", 8192, 100, 64, 8, 0, 28672, 128256, 131072, 5e5, false, {}, text_says(every_fifth(100))},
};

const RegisterFamily mllama("mllama", {.title = "Llama 3.2 Vision",
                                       .architecture = "MllamaForConditionalGeneration",
                                       .read = read,
                                       .says = {{"image_token_index", 128256},
                                                {"vision_config",
                                                 {{"model_type", "mllama_vision_model"},
                                                  {"hidden_size", 1280},
                                                  {"num_hidden_layers", 32},
                                                  {"num_global_layers", 8},
                                                  {"attention_heads", 16},
                                                  {"intermediate_size", 5120},
                                                  {"image_size", 560},
                                                  {"patch_size", 14},
                                                  {"max_num_tiles", 4},
                                                  {"norm_eps", 1e-5},
                                                  {"vision_output_dim", 7680},
                                                  {"intermediate_layers_indices", {3, 7, 15, 23, 30}}}}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::mllama
