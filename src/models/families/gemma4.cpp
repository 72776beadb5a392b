// SPDX-License-Identifier: Apache-2.0
// Gemma 4 that sees pictures and videos in their own shape. In the large models tokens of a picture see each other in
// the layers that slide. What the small ones hear with is left out.
#include "models/families/gemma4.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::gemma4 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec text = read_text_part(c, "gemma4_text");
  require(c.find("vision_config"), Fault::Model,
          "config.json: a gemma4 without vision_config is not supported: take gemma4_text");
  SeeingSpec seeing{.vision = read_gemma4_tower(part_of(c, "vision_config"))};
  const Json ahead = part_of(c, "text_config").json().value("use_bidirectional_attention", Json());
  seeing.sees_ahead = seeing.ahead_in_windows_only = ahead == "vision";
  seeing.forms = {{}};
  text.tied |= c.flag("tie_word_embeddings", true);
  if (const int64_t video = c.integer("video_token_id", 258884); video < text.shape.vocab) seeing.video_token = video;
  return with_tower(c, std::move(text), std::move(seeing));
}

Json text(Json own) {
  Json says = gemma4::says();
  says.update(own);
  says.update({{"model_type", "gemma4_text"}, {"architectures", {"Gemma4ForCausalLM"}}});
  return says;
}
Json small(int64_t shared_layers, bool wide) {
  return {{"text_config", text(small_says(shared_layers, wide))},
          {"vision_config",
           {{"hidden_size", 768},
            {"num_hidden_layers", 16},
            {"num_attention_heads", 12},
            {"intermediate_size", 3072},
            {"head_dim", 64},
            {"use_clipped_linears", true}}}};
}
Json large(Json own) {
  Json says = text(std::move(own));
  says["use_bidirectional_attention"] = "vision";
  return {{"text_config", says},
          {"vision_config",
           {{"hidden_size", 1152},
            {"num_hidden_layers", 27},
            {"num_attention_heads", 16},
            {"intermediate_size", 4304},
            {"head_dim", 72},
            {"standardize", true}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma4-e2b-sees", 1536, 35, 8, 1, 256, 6144, 262144, 131072, 1e6, true, {}, small(20, true)},
    {"gemma4-e4b-sees", 2560, 42, 8, 2, 256, 10240, 262144, 131072, 1e6, true, {}, small(18, false)},
    {"gemma4-26b-a4b-sees", 2816, 30, 16, 8, 256, 2112, 262144, 262144, 1e6, true, {}, large(mixture_says())},
    {"gemma4-31b-sees", 5376, 60, 32, 16, 256, 21504, 262144, 262144, 1e6, true, {}, large(large_says(4))},
};

const RegisterFamily gemma4_sees("gemma4", {.title = "Gemma 4",
                                            .architecture = "Gemma4ForConditionalGeneration",
                                            .read = read,
                                            .says = {{"image_token_id", 258880},
                                                     {"video_token_id", 258884},
                                                     {"vision_config",
                                                      {{"model_type", "gemma4_vision"},
                                                       {"patch_size", 16},
                                                       {"pooling_kernel_size", 3},
                                                       {"position_embedding_size", 10240}}}},
                                            .presets = presets});
}  // namespace

}  // namespace apus::families::gemma4
