// SPDX-License-Identifier: Apache-2.0
// Ovis 2 in transformers' layout, which reads a norm behind the tower that Ovis's own files (ovis) have and do not use.
#include "base/error.h"
#include "models/families/ovis.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::ovis2 {

namespace {
DecoderSpec read(const Config& c) {
  const Config vision = part_of(c, "vision_config");
  SeeingSpec seeing{.vision = read_aimv2(vision, "mlp_bias")};
  VisionSpec& s = seeing.vision;
  s.block_bias = vision.flag("qkv_bias", false);
  require(s.block_bias == vision.flag("mlp_bias", false), Fault::Model,
          "config.json: vision_config: qkv_bias and mlp_bias must be the same");
  s.name = "model.vision_tower.transformer", s.merger = "model.vision_tower";
  VisionNames& n = s.names;
  n.patches = "embeddings.patch_embedding", n.norm_in = "embeddings.rms_norm",
  n.table = "embeddings.position_embedding";
  n.blocks = "encoder.layers", n.norm_out = "rms_norm", n.norm1 = "rms_norm1", n.norm2 = "rms_norm2";
  n.qkv = nullptr, n.q = "attention.q_proj", n.k = "attention.k_proj", n.v = "attention.v_proj";
  n.proj = "attention.out_proj";
  n.gate = "ffn.gate_proj", n.up = "ffn.up_proj", n.down = "ffn.down_proj";
  n.merger_in = "head_linear", n.merger_norm = "head_norm";
  std::vector<int64_t> marks = c.integers("visual_indicator_token_ids");
  if (marks.empty()) marks = {151666, 151667, 151668, 151669, 151670};
  const int64_t wanted = vision.integer("num_visual_indicator_tokens", 5), atom = c.integer("image_token_id", 151665);
  require(static_cast<int64_t>(marks.size()) == wanted && wanted == 5, Fault::Model, "config.json: ", marks.size(),
          " visual_indicator_token_ids, and num_visual_indicator_tokens is ", wanted, "; both must be 5");
  use_visual_words(vision, s, marks);
  s.word_table = "model.visual_embeddings_table";
  seeing.forms = {{}};
  DecoderSpec text = read_text_part(c, "qwen2");
  text.tied = c.flag("tie_word_embeddings", true);
  require(atom >= 0 && atom < text.shape.vocab, Fault::Model, "config.json: image_token_id ", atom,
          " must lie inside the vocabulary of ", text.shape.vocab);
  for (const int64_t mark : marks)
    require(mark >= 0 && mark < text.shape.vocab, Fault::Model, "config.json: visual_indicator_token_ids has ", mark,
            ", which must lie inside the vocabulary of ", text.shape.vocab);
  return with_visual_words(std::move(text), std::move(seeing), atom);
}

Json qwen2_says() { return {{"text_config", {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}}}}; }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ovis2-1b-hf", 896, 24, 14, 2, 64, 4864, 151936, 32768, 1e6, true, {}, qwen2_says()},
};

const RegisterFamily ovis2("ovis2", {.title = "Ovis 2, transformers' layout",
                                     .architecture = "Ovis2ForConditionalGeneration",
                                     .read = read,
                                     .says = {{"image_token_id", 151665},
                                              {"visual_indicator_token_ids", {151666, 151667, 151668, 151669, 151670}},
                                              {"vision_config",
                                               {{"model_type", "ovis2_vision"},
                                                {"hidden_size", 1024},
                                                {"num_hidden_layers", 24},
                                                {"num_attention_heads", 8},
                                                {"intermediate_size", 2816},
                                                {"image_size", 448},
                                                {"patch_size", 14},
                                                {"hidden_stride", 2},
                                                {"vocab_size", 65536},
                                                {"num_visual_indicator_tokens", 5},
                                                {"tokenize_function", "softmax"},
                                                {"rms_norm_eps", 1e-5}}}},
                                     .presets = presets});
}  // namespace

}  // namespace apus::families::ovis2
