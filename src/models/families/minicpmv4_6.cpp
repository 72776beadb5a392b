// SPDX-License-Identifier: Apache-2.0
// MiniCPM-V 4.6: Qwen3.5's text part behind SigLIP's tower, which brings 2 x 2 patches together among its blocks and
// once more behind them.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::minicpmv4_6 {

namespace {
// A number, or the same number twice.
bool is_two(const Config& c, const char* key) {
  const Json* said = c.find(key);
  return !said || *said == 2 || *said == Json({2, 2});
}

DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "qwen3_5_text");
  const Config vision = part_of(c, "vision_config");
  require(c.text("downsample_mode", "16x") == "16x" && c.integer("merger_times", 1) == 1 &&
              is_two(c, "merge_kernel_size") && is_two(vision, "window_kernel_size") &&
              !c.flag("drop_vision_last_layer", false),
          Fault::Model,
          "config.json: only downsample_mode '16x', merger_times 1, drop_vision_last_layer false and kernels of 2 x 2 "
          "are supported");
  SeeingSpec seeing{.vision = read_minicpm_tower(vision, c.integer("insert_layer_id", 6))};
  VisionSpec& tower = seeing.vision;
  tower.merger = "model.merger.mlp.0", tower.merger_norm_first = false;
  tower.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-6};
  tower.names.merger_norm = "pre_norm", tower.names.merger_in = "linear_1", tower.names.merger_out = "linear_2";
  text.tied = c.flag("tie_word_embeddings", false);
  seeing.forms = {{}};
  return with_tower(c, std::move(text), std::move(seeing));
}

Json text_says() {
  Json says = qwen3_5_says();
  says.update({{"model_type", "qwen3_5_text"}, {"architectures", {"Qwen3_5ForCausalLM"}}});
  return {{"text_config", says}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"minicpm-v-4.6", 1024, 24, 8, 2, 256, 3584, 248320, 262144, 1e7, true, {}, text_says()},
};

const RegisterFamily minicpmv4_6("minicpmv4_6", {.title = "MiniCPM-V 4.6",
                                                 .architecture = "MiniCPMV4_6ForConditionalGeneration",
                                                 .read = read,
                                                 .says = {{"image_token_id", 248056},
                                                          {"insert_layer_id", 6},
                                                          {"vision_config",
                                                           {{"model_type", "minicpmv4_6_vision"},
                                                            {"hidden_size", 1152},
                                                            {"num_hidden_layers", 27},
                                                            {"num_attention_heads", 16},
                                                            {"intermediate_size", 4304},
                                                            {"image_size", 980},
                                                            {"patch_size", 14},
                                                            {"window_kernel_size", {2, 2}},
                                                            {"hidden_act", "gelu_pytorch_tanh"}}}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::minicpmv4_6
