// SPDX-License-Identifier: Apache-2.0
// MiniCPM-V 2.5, 2.6, 4 and 4.5, and what MiniCPM-o sees: SigLIP's tower over pictures in their own size, queries that
// read each of them, and a text model that the version names. Sounds are not heard, and nothing is spoken.
#include "models/families/minicpmv.h"

#include "base/error.h"
#include "media/minicpm.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::minicpmv {

namespace {
DecoderSpec read_text(const Config& c, double version, bool hears) {
  Json text = c.json();
  for (const char* own : {"vision_config", "audio_config", "tts_config", "slice_config", "auto_map"}) text.erase(own);
  require(version > 2.4, Fault::Model, "config.json: version ", version,
          ": MiniCPM-V before 2.5 is not read; take 2.5 or a later one");
  text["model_type"] = version > 4.4 ? "qwen3" : version > 3 ? "llama" : version > 2.55 || hears ? "qwen2" : "llama";
  return read_language(Config(text), "llm.");
}
}  // namespace

}  // namespace apus::families::minicpmv

namespace apus {

DecoderSpec read_minicpmv(const Config& c, bool hears) {
  const double version = minicpm_version(c.json());
  DecoderSpec text = families::minicpmv::read_text(c, version, hears);
  SeeingSpec seeing{.vision = read_minicpm_tower(part_of(c, "vision_config")), .forms = {{}}};
  VisionSpec& tower = seeing.vision;
  if (c.flag("drop_vision_last_layer", !hears)) --tower.layers;
  tower.table_in_steps = true, tower.table_of_strips = version < 2.6;
  tower.name = "vpm", tower.merger = "resampler", tower.out = text.shape.hidden;
  tower.names.merger_norm = tower.names.merger_in = tower.names.merger_out = nullptr;
  // Heads of 128 numbers; smaller models, which tests make, say how many.
  tower.resampler = {c.integer("query_num", 64), c.integer("resampler_heads", text.shape.hidden / 128)};
  const ResamplerForm& r = tower.resampler;
  require(tower.layers > 0 && r.queries > 0 && r.queries <= 4096 && r.heads > 0 && tower.out % r.heads == 0 &&
              tower.out % 4 == 0,
          Fault::Model, "config.json: query_num ", r.queries, ", ", r.heads, " heads of the queries and hidden_size ",
          tower.out, " do not fit together");
  seeing.image_token = c.integer("image_token_id", kTokenizersChoice), seeing.time = TimeRule::Text;
  seeing.language = {"llm"}, seeing.tower = {"vpm"}, seeing.aligner = {"resampler"};
  text.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return text;
}

Json minicpm_vision_says() {
  return {{"drop_vision_last_layer", false},
          {"query_num", 64},
          {"vision_config",
           {{"model_type", "siglip_vision_model"},
            {"hidden_size", 1152},
            {"num_hidden_layers", 27},
            {"num_attention_heads", 16},
            {"intermediate_size", 4304},
            {"image_size", 980},
            {"patch_size", 14},
            {"hidden_act", "gelu_pytorch_tanh"}}}};
}

}  // namespace apus

namespace apus::families::minicpmv {

namespace {
DecoderSpec read(const Config& c) { return read_minicpmv(c, false); }

// name           hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minicpm-v-2.6", 3584, 28, 28, 4, 0, 18944, 151666, 32768, 1e6, false, {}, {{"version", 2.6}}},
    {"minicpm-v-4.5", 4096, 36, 32, 8, 128, 12288, 151748, 40960, 1e6, false, {}, {{"version", 4.5}}},
};

const RegisterFamily minicpmv("minicpmv", {.title = "MiniCPM-V 2.5 to 4.5",
                                           .architecture = "MiniCPMV",
                                           .read = read,
                                           .says = minicpm_vision_says(),
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::minicpmv
