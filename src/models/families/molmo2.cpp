// SPDX-License-Identifier: Apache-2.0
// Molmo2: Qwen3 or OLMo 3 with queries, keys and values in one matrix, gate and up in another; a tower over squares of
// one size, of whose patches attention makes rows. They are added to what stands for them, and all of them see each
// other. Beginnings and ends of pictures have an embedding besides the table.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus::families::molmo2 {

namespace {
DecoderSpec read_text(const Config& c) {
  Json said = {{"hidden_size", 4096},  {"num_attention_heads", 32}, {"num_key_value_heads", 8},  {"head_dim", 128},
               {"vocab_size", 151936}, {"num_hidden_layers", 36},   {"intermediate_size", 12288}};
  said.update(in_usual_words(c, {{"layer_norm_eps", "rms_norm_eps"}, {"qkv_bias", "attention_bias"}}));
  const Config words(said);
  DecoderSpec spec = read_decoder(words, {.positions = 36864});
  const std::string norm = c.text("qk_norm_type", "qwen3");
  require(norm == "qwen3" || norm == "olmo", Fault::Model, "config.json: text_config: qk_norm_type '", norm,
          "' is not supported; known: olmo, qwen3");
  require(c.flag("use_qk_norm", true), Fault::Model, "config.json: text_config: use_qk_norm false is not supported");
  spec.attention = {.qkv_bias = words.flag("attention_bias", false),
                    .fused = Fused::Blocks,
                    .fused_name = "att_proj",
                    .out_name = "attn_out",
                    .qk_norm = norm == "qwen3" ? QkNorm::Head : QkNorm::AllHeads};
  for (FeedForwardSpec& each : spec.feed_forward) {
    DenseSpec& dense = std::get<DenseSpec>(each);
    dense.kind = FeedForwardKind::FusedGate, dense.gate_last = true;
    dense.names = {.up = "ff_proj", .down = "ff_out"};
  }
  if (c.flag("norm_after", false))
    spec.norms = {.before_attention = "",
                  .after_attention = "attn_norm",
                  .before_feed_forward = "",
                  .after_feed_forward = "ff_norm"};
  else
    spec.norms = {.before_attention = "attn_norm", .before_feed_forward = "ff_norm"};
  if (c.find("rope_scaling_layers")) {
    const std::vector<int64_t> scaled = c.integers("rope_scaling_layers");
    const RopeSpec& rope = spec.ropes[0];
    spec.ropes.push_back({.dim = rope.dim, .theta = rope.theta, .original_positions = rope.original_positions});
    for (size_t i = 0; i < spec.rope_of.size(); ++i)
      spec.rope_of[i] = std::count(scaled.begin(), scaled.end(), static_cast<int64_t>(i)) > 0 ? 0 : 1;
  }
  spec.backbone = "model.transformer", spec.layers_name = "blocks", spec.embed_name = "wte", spec.final_norm = "ln_f";
  return spec;
}

// Files of the hub call settings otherwise than transformers does.
Json vision_words(const Config& c) {
  const bool hub = c.find("vision_config") == nullptr;
  const Config own = part_of(c, hub ? "vit_config" : "vision_config");
  Json said = {{"patch_size", 14}, {"hidden_act", "gelu_pytorch_tanh"}, {"num_hidden_layers", 25}};
  said.update(in_usual_words(own, {{"image_default_input_size", "image_size"},
                                   {"image_patch_size", "patch_size"},
                                   {"image_num_pos", "num_position_embeddings"}}));
  const std::vector<int64_t> size =
      said.contains("image_size") ? Config(said).integers("image_size") : std::vector<int64_t>{378, 378};
  require(size.size() == 2 && size[0] == size[1], Fault::Model,
          "config.json: the vision part's image_size must be two equal numbers");
  said["image_size"] = size[0], said["model_type"] = "siglip_vision_model", said["vision_use_head"] = false;
  for (const auto& [key, unsaid] :
       {std::pair{"hidden_size", 1152}, {"intermediate_size", 4304}, {"num_attention_heads", 16}})
    if (!said.contains(key)) said[key] = unsaid;
  return said;
}

VisionSpec read_vision(const Config& c, const Config& adapter) {
  const Json said = vision_words(c);
  const Config vision(said);
  VisionSpec s = read_tower(vision);
  s.tile = 0, s.patch_by_pixel = true, s.merger = "";
  s.name = "model.vision_backbone.image_vit";
  require(vision.integer("num_key_value_heads", s.heads) == s.heads &&
              vision.integer("head_dim", s.head_size()) == s.head_size() &&
              vision.integer("num_position_embeddings", s.table_side * s.table_side) == s.table_side * s.table_side,
          Fault::Model, "config.json: the vision part's head_dim and num_key_value_heads must be those of its ",
          s.heads, " heads and its width of ", s.width, ", and num_position_embeddings its patches'");
  s.qkv_bias = vision.flag("attention_bias", true);
  const char* const key = adapter.find("vision_feature_layer") ? "vision_feature_layer" : "vit_layers";
  s.taken_layers = adapter.find(key) ? adapter.integers(key) : std::vector<int64_t>{24, 18};
  int64_t last = -1;
  for (int64_t& layer : s.taken_layers) {
    require(layer >= -s.layers && layer < s.layers, Fault::Model, "config.json: adapter_config: ", key, ": ", layer,
            " is none of the tower's ", s.layers, " layers");
    if (layer < 0) layer += s.layers;
    last = std::max(last, layer);
  }
  require(last >= 0, Fault::Model, "config.json: adapter_config: ", key, " names no layer");
  // Those of the hub end with the last layer that is taken, whatever config.json says.
  if (c.find("vision_config")) s.unread_layers = s.layers - last - 1;
  s.layers = last + 1;
  VisionNames& n = s.names;
  n = {.patches = "patch_embedding", .table = "positional_embedding", .blocks = "transformer.resblocks"};
  n.norm1 = "attention_norm", n.norm2 = "ffn_norm", n.qkv = nullptr;
  n.q = "attention.wq", n.k = "attention.wk", n.v = "attention.wv", n.proj = "attention.wo";
  n.up = "feed_forward.w1", n.down = "feed_forward.w2";
  n.merger_norm = n.merger_in = n.merger_out = nullptr;
  return s;
}

PoolerForm read_adapter(const Config& c, int64_t hidden) {
  PoolerForm p{.width = c.integer("hidden_size", 1152),
               .heads = c.integer("num_attention_heads", 16),
               .ffn = c.integer("intermediate_size", 18944),
               .bias = c.flag("attention_bias", true),
               .ffn_bias = c.flag("mlp_bias", false),
               .attention = "model.vision_backbone.image_pooling_2d",
               .feed_forward = "model.vision_backbone.image_projector"};
  require(p.heads > 0 && p.width > 0 && p.width % p.heads == 0 && p.ffn > 0 &&
              c.integer("head_dim", p.head_size()) == p.head_size() &&
              c.integer("num_key_value_heads", p.heads) == p.heads && c.text("hidden_act", "silu") == "silu" &&
              c.integer("text_hidden_size", hidden) == hidden,
          Fault::Model, "config.json: adapter_config: ", p.heads, " heads of a width of ", p.width,
          " do not fit head_dim, num_key_value_heads or text_hidden_size (", hidden, "), or hidden_act is not silu");
  return p;
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_text(part_of(c, "text_config"));
  const Config adapter = part_of(c, "adapter_config");
  require(!c.flag("tie_word_embeddings", false) && !part_of(c, "text_config").flag("tie_word_embeddings", false),
          Fault::Model, "config.json: tie_word_embeddings true is not supported: the embedding is of two tables");
  SeeingSpec seeing{.vision = read_vision(c, adapter)};
  const int64_t words = part_of(c, "text_config").integer("additional_vocab_size", 128);
  const int64_t known = spec.shape.vocab + words;
  seeing.vision.out = spec.shape.hidden, seeing.vision.pooler = read_adapter(adapter, spec.shape.hidden);
  seeing.time = TimeRule::Text, seeing.sees_ahead = seeing.added = true;
  if (words > 0) seeing.media_words = {.table = "model.transformer.wte.new_embedding", .count = words};
  seeing.image_token = seeing.video_token = c.integer("image_patch_id", 151938);
  seeing.marks_ahead = {c.integer("image_start_token_id", 151936),
                        c.integer("image_end_token_id", 151937),
                        c.integer("image_col_id", seeing.image_token + 1),
                        c.integer("low_res_image_start_token_id", 151940),
                        c.integer("image_low_res_id", seeing.image_token + 4),
                        c.integer("frame_start_token_id", 151943),
                        c.integer("frame_end_token_id", 151944)};
  require(seeing.image_token < known, Fault::Model, "config.json: image_patch_id ", seeing.image_token,
          " must lie inside the vocabulary of ", known);
  seeing.language = {"model.transformer", "lm_head"}, seeing.tower = {seeing.vision.name};
  seeing.aligner = {seeing.vision.pooler.attention, seeing.vision.pooler.feed_forward};
  seeing.forms = {{.renames = {{"model.transformer.wte.weight", "model.transformer.wte.embedding"},
                               {seeing.vision.name + ".positional_embedding.weight",
                                seeing.vision.name + ".positional_embedding"}}}};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json sizes_say(const char* qk_norm, bool norm_after, int64_t ffn, int64_t hidden, int64_t image_start) {
  Json says = {
      {"text_config",
       {{"model_type", "molmo2_text"},
        {"qk_norm_type", qk_norm},
        {"norm_after", norm_after},
        {"additional_vocab_size", 128}}},
      {"adapter_config",
       {{"model_type", "molmo2"}, {"vit_layers", {-3, -9}}, {"intermediate_size", ffn}, {"text_hidden_size", hidden}}}};
  int64_t id = image_start;
  for (const char* token :
       {"image_start_token_id", "image_end_token_id", "image_patch_id", "image_col_id", "low_res_image_start_token_id",
        "", "image_low_res_id", "frame_start_token_id", "frame_end_token_id"}) {
    if (*token) says[token] = id;
    ++id;
  }
  return says;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"molmo2-4b",
     2560,
     36,
     32,
     8,
     128,
     9728,
     151936,
     36864,
     5e6,
     false,
     {},
     sizes_say("qwen3", false, 9728, 2560, 151936)},
    {"molmo2-8b",
     4096,
     36,
     32,
     8,
     128,
     12288,
     151936,
     36864,
     1e6,
     false,
     {},
     sizes_say("qwen3", false, 12288, 4096, 151936)},
    {"molmo2-o-7b",
     4096,
     32,
     32,
     32,
     128,
     11008,
     100278,
     65536,
     5e5,
     false,
     {},
     sizes_say("olmo", true, 11008, 4096, 100278)},
};

const RegisterFamily molmo2("molmo2", {.title = "Molmo2",
                                       .architecture = "Molmo2ForConditionalGeneration",
                                       .read = read,
                                       .says = {{"vit_config",
                                                 {{"model_type", "molmo2"},
                                                  {"hidden_size", 1152},
                                                  {"intermediate_size", 4304},
                                                  {"num_hidden_layers", 27},
                                                  {"num_attention_heads", 16},
                                                  {"image_default_input_size", {378, 378}},
                                                  {"image_patch_size", 14},
                                                  {"image_num_pos", 729}}}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::molmo2
