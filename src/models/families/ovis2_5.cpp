// SPDX-License-Identifier: Apache-2.0
// Ovis2.5: any text model (Qwen3), and a tower whose rows are shares of words of its own. Media stand in the text as
// numbers below 0: kAtom for each row, and marks before and behind them, which are words too.
#include <charconv>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::ovis2_5 {

namespace {
constexpr int64_t kAtom = -300;

// "1|3"
std::vector<int64_t> layers_named(const Config& vit) {
  std::vector<int64_t> layers;
  const Json* value = vit.find("fullatt_block_indexes");
  if (!value) return layers;
  if (value->is_array()) return vit.integers("fullatt_block_indexes");
  const std::string text = vit.text("fullatt_block_indexes", "");
  const char *at = text.data(), *const end = at + text.size();
  while (at < end) {
    int64_t layer = 0;
    const auto [next, error] = std::from_chars(at, end, layer);
    require(error == std::errc() && (next == end || *next == '|'), Fault::Model,
            "config.json: vit_config: fullatt_block_indexes '", text, "' is not of the form 1|3");
    layers.push_back(layer), at = next + 1;
  }
  return layers;
}

VisionSpec read_own_tower(const Config& v) {
  VisionSpec s;
  s.width = v.integer("hidden_size", 1024), s.layers = v.integer("num_hidden_layers", 24);
  s.heads = v.integer("num_attention_heads", 16), s.ffn = v.integer("intermediate_size", 4096);
  s.channels = v.integer("num_channels", 3), s.patch = v.integer("patch_size", 16);
  s.merge = v.integer("hidden_stride", 2), s.time_patch = v.integer("temporal_patch_size", 1);
  const int64_t image = v.integer("image_size", 512);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 &&
              s.head_size() % 4 == 0 && s.patch > 0 && s.merge > 0 && image > 0 && image % s.patch == 0,
          Fault::Model, "config.json: vit_config: ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          ", patch_size ", s.patch, " and image_size ", image, " do not fit together");
  const std::string act = v.text("hidden_act", "gelu_pytorch_tanh");
  const Json* patches = v.find("num_patches");
  require(act == "gelu_pytorch_tanh" && (!patches || *patches == -1) && s.time_patch == 1 &&
              v.flag("preserve_original_pe", true),
          Fault::Model,
          "config.json: vit_config: only hidden_act 'gelu_pytorch_tanh', num_patches -1, "
          "temporal_patch_size 1 and preserve_original_pe are supported");
  s.norm = {NormKind::MeanAndBias, v.number("layer_norm_eps", 1e-6)};
  s.act = TowerActivation::GeluTanh;
  s.patch_has_time = false, s.patch_bias = true, s.turned = v.flag("use_rope", true);
  s.table_side = image / s.patch, s.table_form = TableForm::Cubic;
  s.full_layers = layers_named(v);
  if (!s.full_layers.empty()) s.window = v.integer("window_size", 112) / s.merge / s.patch;
  require(s.full_layers.empty() || s.window > 0, Fault::Model,
          "config.json: vit_config: window_size is smaller than a merged patch");
  s.name = "visual_tokenizer.vit.vision_model", s.merger = "visual_tokenizer.head";
  VisionNames& n = s.names;
  n.patches = "embeddings.patch_embedding", n.table = "embeddings.position_embedding", n.blocks = "encoder.layers";
  n.norm1 = "layer_norm1", n.norm2 = "layer_norm2";
  n.qkv = nullptr, n.q = "self_attn.q_proj", n.k = "self_attn.k_proj", n.v = "self_attn.v_proj";
  n.proj = "self_attn.out_proj", n.idle_norm = "post_layernorm";
  n.merger_in = "0", n.merger_norm = "1";
  s.merger_norm_first = false, s.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  return s;
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_language(part_of(c, "llm_config"), "llm.");
  SeeingSpec seeing{.vision = read_own_tower(part_of(c, "vit_config"))};
  VisionSpec& tower = seeing.vision;
  tower.out = spec.shape.hidden;
  tower.words = c.integer("visual_vocab_size", 65536), tower.word_table = "vte";
  tower.mark_tokens = {-301, -302, -303, -304};
  require(tower.words > tower.marks(), Fault::Model, "config.json: visual_vocab_size ", tower.words, " must be above ",
          tower.marks());
  seeing.image_token = seeing.video_token = kAtom;
  seeing.time = TimeRule::Text;
  seeing.language = {"llm"}, seeing.tower = {"visual_tokenizer.vit", "vte"}, seeing.aligner = {tower.merger};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json text_part_says() { return {{"llm_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}}}; }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ovis2.5-2b", 2048, 28, 16, 8, 128, 6144, 151936, 40960, 1e6, true, {}, text_part_says()},
    {"ovis2.5-9b", 4096, 36, 32, 8, 128, 12288, 151936, 40960, 1e6, false, {}, text_part_says()},
};

const RegisterFamily ovis2_5("ovis2_5", {.title = "Ovis2.5",
                                         .architecture = "Ovis2_5",
                                         .read = read,
                                         .says = {{"visual_vocab_size", 65536},
                                                  {"vit_config",
                                                   {{"model_type", "siglip2_navit"},
                                                    {"hidden_size", 1152},
                                                    {"num_hidden_layers", 27},
                                                    {"num_attention_heads", 16},
                                                    {"intermediate_size", 4304},
                                                    {"image_size", 512},
                                                    {"patch_size", 16},
                                                    {"hidden_stride", 2},
                                                    {"temporal_patch_size", 1},
                                                    {"num_patches", -1},
                                                    {"use_rope", true},
                                                    {"hidden_act", "gelu_pytorch_tanh"},
                                                    {"layer_norm_eps", 1e-6}}}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::ovis2_5
