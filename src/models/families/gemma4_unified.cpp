// SPDX-License-Identifier: Apache-2.0
// Gemma 4 without towers (12B): squares of 48 x 48 pixels and frames of 640 samples become rows of the text model by
// one product each, between norms. Tokens of a picture see each other.
#include "base/error.h"
#include "models/families/gemma4.h"
#include "models/spec/family.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::gemma4_unified {

namespace {
VisionSpec read_unified_tower(const Config& v) {
  const int64_t side = v.integer("patch_size", 16), together = v.integer("pooling_kernel_size", 3);
  VisionSpec s;
  s.width = v.integer("mm_embed_dim", 3840), s.layers = 0, s.heads = 1, s.ffn = 0;
  s.table_side = v.integer("mm_posemb_size", 1120);
  require(side > 0 && side <= 1 << 10 && together > 0 && together <= 1 << 6 && s.width > 0 && s.table_side > 0,
          Fault::Model, "config.json: vision_config: patch_size ", side, ", pooling_kernel_size ", together,
          ", mm_embed_dim ", s.width, ", mm_posemb_size ", s.table_side, " do not fit together");
  s.patch = side * together, s.time_patch = s.merge = 1;
  s.patch_by_pixel = s.patch_bias = true, s.turned = false;
  s.table_form = TableForm::Axes, s.axes_side_by_side = true, s.table_behind_norm = true;
  s.norm = {NormKind::MeanAndBias, 1e-5};
  s.name = "model.vision_embedder", s.merger = "model.embed_vision";
  s.merger_norm = NormSpec{NormKind::RmsAlone, v.number("rms_norm_eps", 1e-6)}, s.merger_bias = false;
  VisionNames& n = s.names;
  n.norm_patches = "patch_ln1", n.patches = "patch_dense", n.norm_in = "patch_ln2";
  n.table = "pos_embedding", n.norm_out = "pos_norm";
  n.merger_norm = "embedding_pre_projection_norm", n.merger_in = "embedding_projection", n.merger_out = nullptr;
  return s;
}

// The text part is Gemma 4's without numbers of each layer's own, whatever is left out.
DecoderSpec read_unified_text(const Config& c) {
  Json whole = c.json();
  Json usual = {{"model_type", "gemma4_text"}, {"hidden_size_per_layer_input", 0}, {"sliding_window", 1024}};
  Json said = part_of(c, "text_config").json();
  said.erase("model_type");
  usual.update(said);
  whole["text_config"] = std::move(usual);
  return read_text_part(Config(whole), "gemma4_text");
}

DecoderSpec read(const Config& c) {
  DecoderSpec text = read_unified_text(c);
  require(c.find("vision_config"), Fault::Model,
          "config.json: a gemma4_unified without vision_config is not supported");
  SeeingSpec seeing{.vision = read_unified_tower(part_of(c, "vision_config"))};
  seeing.sees_ahead = part_of(c, "text_config").text("use_bidirectional_attention", "vision") == "vision";
  // The second: as transformers 5 calls them while it runs.
  seeing.forms = {{},
                  {.renames = {{"model.vision_embedder.", "model.embed_vision."},
                               {"model.embed_vision.", "model.embed_vision.multimodal_embedder."}}}};
  text.tied |= c.flag("tie_word_embeddings", true);
  const auto token = [&](const char* key, int64_t usual) {
    const int64_t number = c.integer(key, usual);
    return number < text.shape.vocab ? number : -1;
  };
  seeing.video_token = token("video_token_id", 258884);
  if (c.find("audio_config")) {
    seeing.sound_token = token("audio_token_id", 258881);
    seeing.hearing = std::make_shared<const HearingSpec>(
        read_bare_hearing(part_of(c, "audio_config"), text.shape.hidden, "model.embed_audio.embedding_projection"));
  }
  return with_tower(c, std::move(text), std::move(seeing));
}

Json text_says() {
  Json says = gemma4::says();
  says.update(gemma4::large_says(1));
  says.update({{"model_type", "gemma4_unified_text"},
               {"architectures", {"Gemma4UnifiedForCausalLM"}},
               {"use_bidirectional_attention", "vision"}});
  return says;
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma4-12b", 3840, 48, 16, 8, 256, 15360, 262144, 262144, 1e6, true, {}, {{"text_config", text_says()}}},
};

const RegisterFamily unified(
    "gemma4_unified", {.title = "Gemma 4 12B, without towers",
                       .architecture = "Gemma4UnifiedForConditionalGeneration",
                       .read = read,
                       .says = {{"image_token_id", 258880},
                                {"video_token_id", 258884},
                                {"audio_token_id", 258881},
                                {"audio_config", {{"model_type", "gemma4_unified_audio"}, {"audio_embed_dim", 640}}},
                                {"vision_config",
                                 {{"model_type", "gemma4_unified_vision"},
                                  {"patch_size", 16},
                                  {"pooling_kernel_size", 3},
                                  {"mm_embed_dim", 3840},
                                  {"mm_posemb_size", 1120},
                                  {"output_proj_dims", 3840}}}},
                       .presets = presets});
}  // namespace

}  // namespace apus::families::gemma4_unified
