// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_tower.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/nearest.h"
#include "gguf/turns.h"
#include "models/spec/conformer_spec.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/read_seeing.h"

namespace apus {

namespace {
TowerActivation read_tower_activation(const Config& v, const char* unsaid) {
  static const std::map<std::string, TowerActivation> known = {{"quick_gelu", TowerActivation::QuickGelu},
                                                               {"gelu", TowerActivation::Gelu},
                                                               {"gelu_pytorch_tanh", TowerActivation::GeluTanh},
                                                               {"silu", TowerActivation::Silu}};
  const std::string name = v.text("hidden_act", unsaid);
  const auto found = known.find(name);
  require(found != known.end(), Fault::Model, "config.json: vision_config: hidden_act '", name,
          "' is not supported; known: gelu, gelu_pytorch_tanh, quick_gelu, silu");
  return found->second;
}

// What the three classes take where the file leaves a key out.
struct TowerDefaults {
  int64_t width, ffn, layers, heads, image, patch;
  const char* act;
  double eps;
};

VisionSpec read_sizes(const Config& v, const TowerDefaults& d) {
  VisionSpec s;
  s.width = v.integer("hidden_size", d.width), s.ffn = v.integer("intermediate_size", d.ffn);
  s.layers = v.integer("num_hidden_layers", d.layers), s.heads = v.integer("num_attention_heads", d.heads);
  s.channels = v.integer("num_channels", 3), s.patch = v.integer("patch_size", d.patch);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && s.ffn > 0 &&
              s.patch > 0 && s.channels > 0,
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          " and patch_size ", s.patch, " do not fit together");
  s.act = read_tower_activation(v, d.act);
  s.merge = s.time_patch = 1, s.patch_has_time = false;
  s.name = "model.vision_tower", s.merger = "model.multi_modal_projector";
  return s;
}

// Of towers that look at square pictures of one size.
VisionSpec read_square(const Config& v, const TowerDefaults& d) {
  VisionSpec s = read_sizes(v, d);
  s.tile = v.integer("image_size", d.image);
  require(s.tile >= s.patch, Fault::Model, "config.json: vision_config: image_size ", s.tile,
          " is smaller than patch_size ", s.patch);
  s.norm = {NormKind::MeanAndBias, v.number("layer_norm_eps", d.eps)};
  s.turned = false, s.table_side = s.tile / s.patch, s.table_form = TableForm::Cubic;
  VisionNames& n = s.names;
  n.patches = "embeddings.patch_embedding", n.table = "embeddings.position_embedding", n.blocks = "encoder.layers";
  n.norm1 = "layer_norm1", n.norm2 = "layer_norm2";
  n.qkv = nullptr, n.q = "self_attn.q_proj", n.k = "self_attn.k_proj", n.v = "self_attn.v_proj";
  n.proj = "self_attn.out_proj", n.idle_norm = "post_layernorm";
  return s;
}

VisionSpec read_siglip(const Config& v) {
  VisionSpec s = read_square(v, {768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6});
  s.patch_bias = true;
  require(!v.flag("vision_use_head", true), Fault::Model,
          "config.json: vision_config: a tower with a head that pools (vision_use_head, which is true where the file "
          "does not say it) is not supported: no model that answers in text reads it");
  return s;
}

}  // namespace

VisionSpec read_idefics_tower(const Config& v) {
  VisionSpec s = read_square(v, {1152, 3072, 12, 16, 224, 32, "gelu_pytorch_tanh", 1e-6});
  s.patch_bias = true;
  return s;
}

VisionSpec read_paddle_tower(const Config& v, int64_t out) {
  VisionSpec s = read_square(v, {1152, 4304, 27, 16, 384, 14, "gelu_pytorch_tanh", 1e-6});
  s.patch_bias = true;
  s.tile = 0, s.turned = true, s.table_form = TableForm::Linear;
  use_last_norm(s);
  s.merge = v.integer("spatial_merge_size", 2);
  require(s.merge > 0 && s.head_size() % 4 == 0, Fault::Model,
          "config.json: vision_config: spatial_merge_size must be above 0, and heads a multiple of 4 wide");
  s.out = out;
  s.merger_norm = NormSpec{NormKind::MeanAndBias, 1e-5};
  s.names.merger_norm = "pre_norm", s.names.merger_in = "linear_1", s.names.merger_out = "linear_2";
  return s;
}

Json paddle_tower_says() {
  return {{"hidden_size", 1152},       {"num_hidden_layers", 27},
          {"num_attention_heads", 16}, {"intermediate_size", 4304},
          {"num_channels", 3},         {"image_size", 384},
          {"patch_size", 14},          {"spatial_merge_size", 2},
          {"layer_norm_eps", 1e-6},    {"hidden_act", "gelu_pytorch_tanh"}};
}

VisionSpec read_minicpm_tower(const Config& v) {
  VisionSpec s = read_square(v, {768, 3072, 12, 12, 224, 16, "gelu_pytorch_tanh", 1e-6});
  s.patch_bias = true;
  s.tile = 0, s.table_form = TableForm::Nearest;
  use_last_norm(s);
  return s;
}

VisionSpec read_minicpm_tower(const Config& v, int64_t halved_behind) {
  VisionSpec s = read_minicpm_tower(v);
  s.merge = 4, s.halved_behind = halved_behind;
  require(halved_behind >= 0 && halved_behind < s.layers, Fault::Model, "config.json: insert_layer_id ", halved_behind,
          " is none of the tower's ", s.layers, " layers");
  return s;
}

VisionSpec read_siglip2_tower(const Config& v) {
  VisionSpec s = read_siglip(v);
  const int64_t places = v.integer("num_patches", 256);
  s.table_side = static_cast<int64_t>(std::sqrt(static_cast<double>(std::max<int64_t>(places, 0))));
  require(s.table_side > 0 && s.table_side * s.table_side == places, Fault::Model,
          "config.json: vision_config: num_patches ", places, " are no square");
  s.tile = 0, s.table_form = TableForm::Covered, s.patch_by_pixel = true;
  use_last_norm(s);
  return s;
}

VisionSpec read_gemma4_tower(const Config& v) {
  Json usual = v.json();
  if (const Json* act = v.find("hidden_activation")) usual["hidden_act"] = *act;
  VisionSpec s = read_sizes(Config(usual), {768, 3072, 16, 12, 0, 16, "gelu_pytorch_tanh", 1e-6});
  const int64_t head = v.integer("head_dim", 64);
  require(head == s.head_size() && head % 4 == 0 && v.integer("num_key_value_heads", s.heads) == s.heads &&
              !v.flag("attention_bias", false),
          Fault::Model, "config.json: vision_config: ", s.heads, " heads of head_dim ", head,
          " are not hidden_size together, or key-value heads are fewer, or attention_bias is true: not supported");
  s.norm = s.qk_norm = {NormKind::Rms, v.number("rms_norm_eps", 1e-6)};
  s.qk_norm_of_heads = s.value_norm = true, s.score_scale = 1;
  s.qkv_bias = s.block_bias = false, s.clipped = v.flag("use_clipped_linears", false);
  const Json* rope = v.find("rope_parameters");
  s.turns_halves = true, s.turn_base = rope ? Config(*rope).number("rope_theta", 100) : 100;
  s.table_side = v.integer("position_embedding_size", 10240), s.table_form = TableForm::Axes;
  s.patch_by_pixel = true, s.merge = v.integer("pooling_kernel_size", 3), s.cells = CellForm::Mean;
  s.cell_scale = std::sqrt(static_cast<double>(s.width));
  s.merger = "model.embed_vision", s.merger_bias = false, s.merger_norm_first = false;
  s.merger_norm = NormSpec{NormKind::RmsAlone, s.norm.eps};
  require(s.table_side > 0 && s.merge > 0, Fault::Model,
          "config.json: vision_config: position_embedding_size and pooling_kernel_size must be above 0");
  VisionNames& n = s.names;
  n.patches = "patch_embedder.input_proj", n.table = "patch_embedder.position_embedding_table";
  n.blocks = "encoder.layers", n.norm1 = "input_layernorm", n.norm2 = "pre_feedforward_layernorm";
  n.after_attention = "post_attention_layernorm", n.after_feed_forward = "post_feedforward_layernorm";
  n.qkv = nullptr, n.q = "self_attn.q_proj.linear", n.k = "self_attn.k_proj.linear", n.v = "self_attn.v_proj.linear";
  n.proj = "self_attn.o_proj.linear", n.q_norm = "self_attn.q_norm", n.k_norm = "self_attn.k_norm";
  n.gate = "mlp.gate_proj.linear", n.up = "mlp.up_proj.linear", n.down = "mlp.down_proj.linear";
  n.merger_norm = "embedding_pre_projection_norm", n.merger_in = "embedding_projection", n.merger_out = nullptr;
  if (v.flag("standardize", false)) n.cells_minus = "std_bias", n.cells_times = "std_scale";
  return s;
}

namespace {
VisionSpec read_clip(const Config& v) {
  VisionSpec s = read_square(v, {768, 3072, 12, 12, 224, 32, "quick_gelu", 1e-5});
  s.names.first = "embeddings.class_embedding", s.first_in_table = true;
  s.names.norm_in = "pre_layrnorm";
  return s;
}

VisionSpec read_pixtral(const Config& v) {
  VisionSpec s = read_sizes(v, {1024, 4096, 24, 16, 1024, 16, "gelu", 1e-5});
  require(s.head_size() % 4 == 0, Fault::Model, "config.json: vision_config: heads of ", s.head_size(),
          " numbers cannot turn by rows and columns");
  s.norm = {NormKind::Rms, 1e-5};
  const Json* rope = v.find("rope_parameters");
  s.turn_base = rope ? Config(*rope).number("rope_theta", 1e4) : v.number("rope_theta", 1e4);
  s.turns_alternate = true, s.qkv_bias = s.block_bias = false;
  VisionNames& n = s.names;
  n.patches = "patch_conv", n.norm_in = "ln_pre", n.blocks = "transformer.layers";
  n.norm1 = "attention_norm", n.norm2 = "ffn_norm";
  n.qkv = nullptr, n.q = "attention.q_proj", n.k = "attention.k_proj", n.v = "attention.v_proj";
  n.proj = "attention.o_proj";
  n.gate = "feed_forward.gate_proj", n.up = "feed_forward.up_proj", n.down = "feed_forward.down_proj";
  return s;
}

using TowerReader = VisionSpec (*)(const Config&);
const std::map<std::string, TowerReader>& tower_readers() {
  static const std::map<std::string, TowerReader> all = {
      {"siglip_vision_model", read_siglip}, {"clip_vision_model", read_clip}, {"pixtral", read_pixtral}};
  return all;
}

// Everything below `language_model.` and so on, as files were before transformers 4.52 and as it still writes them; or
// under its own names of today. In files before transformers 5, towers that look at squares stood below
// `vision_model.`.
std::vector<DiskForm> forms_of(const VisionSpec& tower) {
  std::vector<DiskForm> all;
  for (const char* inner : {"vision_model.", ""}) {
    if (tower.tile == 0 && *inner) continue;
    const std::string below = inner;
    all.push_back({.renames = {{"model.language_model.", "language_model.model."},
                               {"lm_head.", "language_model.lm_head."},
                               {"model.vision_tower.", "vision_tower." + below},
                               {"model.multi_modal_projector.", "multi_modal_projector."},
                               {"model.image_newline", "image_newline"}}});
    all.push_back({});
    if (*inner) all.back().renames = {{"model.vision_tower.", "model.vision_tower." + below}};
  }
  return all;
}
}  // namespace

VisionSpec read_tower(const Config& vision) {
  const std::string type = vision.text("model_type", "");
  std::vector<std::string> names;
  for (const auto& [name, reader] : tower_readers()) names.push_back(name);
  const auto found = tower_readers().find(type);
  require(found != tower_readers().end(), Fault::Model, "config.json: vision_config: model_type '", type,
          "' is not supported; known: ", join(names));
  return found->second(vision);
}

VisionSpec timm_siglip(const TimmSizes& sizes) {
  VisionSpec s;
  s.width = sizes.width, s.layers = sizes.layers, s.heads = sizes.heads, s.ffn = sizes.ffn;
  s.patch = sizes.patch, s.tile = sizes.side;
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && s.ffn > 0 &&
              s.patch > 0 && s.tile >= s.patch,
          Fault::Model, "config.json: vision_config: ", s.layers, " layers, ", s.heads, " heads, width ", s.width,
          ", feed-forwards of ", s.ffn, ", patch_size ", s.patch, " and image_size ", s.tile, " do not fit together");
  s.norm = {NormKind::MeanAndBias, 1e-6}, s.act = TowerActivation::GeluTanh;
  s.merge = s.time_patch = 1, s.patch_has_time = false, s.patch_bias = true, s.turned = false;
  s.table_side = s.tile / s.patch, s.table_form = TableForm::Cubic, s.table_bare = true;
  s.names.norm_out = "norm";
  return s;
}

void use_last_norm(VisionSpec& tower) { std::swap(tower.names.norm_out, tower.names.idle_norm); }

void use_feature_layer(const Config& c, VisionSpec& tower, int64_t unsaid) {
  const Json* said = c.find("vision_feature_layer");
  require(!said || said->is_number_integer(), Fault::Model,
          "config.json: vision_feature_layer must be one number: features of several layers are not supported");
  const int64_t layer = said ? said->get<int64_t>() : unsaid;
  const int64_t read = layer < 0 ? tower.layers + 1 + layer : layer;
  require(read > 0 && read <= tower.layers, Fault::Model, "config.json: vision_feature_layer ", layer,
          " is none of the tower's ", tower.layers);
  tower.unread_layers = tower.layers - read, tower.layers = read;
  const std::string strategy = c.text("vision_feature_select_strategy", "default");
  const char* const wanted = tower.names.first ? "default" : "full";
  require(strategy == wanted, Fault::Model, "config.json: vision_feature_select_strategy '", strategy,
          "' is not supported with this tower, only '", wanted, "'");
}

void use_two_layers(const Config& c, VisionSpec& tower, int64_t out, bool bias) {
  const std::string act = c.text("projector_hidden_act", "gelu");
  require(act == "gelu", Fault::Model, "config.json: projector_hidden_act '", act, "' is not supported, only gelu");
  tower.merger_bias = c.flag("multimodal_projector_bias", bias);
  tower.out = tower.merger_inner = out;
  tower.names.merger_norm = nullptr, tower.names.merger_in = "linear_1", tower.names.merger_out = "linear_2";
}

void use_merged_squares(const Config& c, VisionSpec& tower, const DecoderSpec& text) {
  use_two_layers(c, tower, text.shape.hidden, false);
  tower.merge = c.integer("spatial_merge_size", 2), tower.cells = CellForm::ByNumber;
  require(tower.merge > 0, Fault::Model, "config.json: spatial_merge_size must be above 0");
  tower.merger_norm = NormSpec{NormKind::Rms, text.norm.eps};
  tower.names.merger_norm = "norm", tower.names.merger_cells = "patch_merger.merging_layer";
}

namespace {
struct TextDefaults {
  const char* type;
  int64_t vocab, hidden, ffn, layers, heads;
};
constexpr TextDefaults kTextDefaults[] = {
    {"llama", 32000, 4096, 11008, 32, 32},        {"mistral", 32000, 4096, 14336, 32, 32},
    {"qwen2", 151936, 4096, 22016, 32, 32},       {"gemma", 256000, 3072, 24576, 28, 16},
    {"gemma2", 256000, 2304, 9216, 26, 8},        {"gemma3_text", 262208, 2304, 9216, 26, 8},
    {"gemma3n_text", 262400, 2048, 16384, 35, 8}, {"gemma4_text", 262144, 2304, 9216, 30, 8},
};
}  // namespace

DecoderSpec read_text_part(const Config& c, const std::string& type) {
  Json text = part_of(c, "text_config").json();
  if (!text.contains("model_type")) text["model_type"] = type;
  for (const TextDefaults& d : kTextDefaults) {
    if (text["model_type"] != d.type) continue;
    Json all = {{"vocab_size", d.vocab},
                {"hidden_size", d.hidden},
                {"intermediate_size", d.ffn},
                {"num_hidden_layers", d.layers},
                {"num_attention_heads", d.heads}};
    all.update(text);
    text = std::move(all);
  }
  DecoderSpec spec = read_language(Config(text), "");
  spec.backbone = "model.language_model";
  return spec;
}

DecoderSpec with_tower(const Config& c, DecoderSpec spec, SeeingSpec seeing) {
  const int64_t token = c.find("image_token_id") || seeing.image_token < 0
                            ? c.integer(c.find("image_token_id") ? "image_token_id" : "image_token_index")
                            : seeing.image_token;
  require(token < spec.shape.vocab, Fault::Model, "config.json: image_token_id ", token,
          " must lie inside the vocabulary of ", spec.shape.vocab);
  spec.tied |= c.flag("tie_word_embeddings", false);
  VisionSpec& tower = seeing.vision;
  tower.out = spec.shape.hidden;
  seeing.image_token = token;
  seeing.time = TimeRule::Text;
  seeing.language = {spec.backbone, spec.head_name}, seeing.tower = {tower.name}, seeing.aligner = {tower.merger};
  if (seeing.hearing) seeing.tower.push_back(seeing.hearing->name);
  if (seeing.hearing && seeing.hearing->conformer) seeing.aligner.push_back(seeing.hearing->conformer->embedder.name);
  if (seeing.forms.empty()) seeing.forms = forms_of(tower);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json clip_large_says() {
  return {{"model_type", "clip_vision_model"},
          {"hidden_size", 1024},
          {"num_hidden_layers", 24},
          {"num_attention_heads", 16},
          {"intermediate_size", 4096},
          {"image_size", 336},
          {"patch_size", 14},
          {"projection_dim", 768}};
}

Json pixtral_says() {
  return {{"model_type", "pixtral"},   {"hidden_size", 1024},       {"num_hidden_layers", 24},
          {"num_attention_heads", 16}, {"intermediate_size", 4096}, {"hidden_act", "silu"},
          {"image_size", 1540},        {"patch_size", 14},          {"rope_theta", 1e4}};
}

std::vector<GgufKey> usual_tower_keys() {
  return {{"num_hidden_layers", "vision.block_count"},
          {"num_attention_heads", "vision.attention.head_count"},
          {"hidden_size", "vision.embedding_length"},
          {"intermediate_size", "vision.feed_forward_length"},
          {"image_size", "vision.image_size"},
          {"patch_size", "vision.patch_size"},
          {"layer_norm_eps", "vision.attention.layer_norm_epsilon", GgufKey::Number}};
}

GgufTower siglip_gguf_tower(const std::string& begin) {
  GgufTower tower;
  tower.form.layers = begin + "encoder.layers.";
  tower.form.names = {{"layer_norm1", "ln1"},
                      {"layer_norm2", "ln2"},
                      {"self_attn.q_proj", "attn_q"},
                      {"self_attn.k_proj", "attn_k"},
                      {"self_attn.v_proj", "attn_v"},
                      {"self_attn.out_proj", "attn_out"},
                      {"mlp.fc1", "ffn_up"},
                      {"mlp.fc2", "ffn_down"},
                      {begin + "embeddings.patch_embedding", "v.patch_embd"},
                      {begin + "embeddings.position_embedding", "v.position_embd"},
                      {begin + "post_layernorm", "v.post_ln"}};
  tower.form.keys = usual_tower_keys();
  tower.says = {{"vision_config",
                 {{"model_type", "siglip_vision_model"},
                  {"hidden_act", "gelu_pytorch_tanh"},
                  {"num_channels", 3},
                  {"vision_use_head", false}}}};
  return tower;
}

namespace {
void read_file_of_pixtral(const GgufSays& clip, Json& config) {
  config["vision_config"]["hidden_act"] = clip.flag("use_silu").value_or(false) ? "silu" : "gelu";
}
void write_file_of_pixtral(const Json& config, GgufSettingsWriter& out) {
  const Json vision = config.value("vision_config", Json::object());
  const std::string act = vision.value("hidden_act", "gelu");
  require(act == "gelu" || act == "silu", Fault::Model, "config.json: vision_config: hidden_act '", act,
          "' has no place in a GGUF file");
  out.own("use_" + act, GgufValue::flag(true));
  out.number("vision.attention.layer_norm_epsilon", 1e-5);
  if (config.contains("spatial_merge_size")) out.whole("vision.spatial_merge_size", config["spatial_merge_size"]);
}
}  // namespace

GgufTower pixtral_gguf_tower() {
  GgufTower tower{.projector = "pixtral", .text = "mistral", .any_text = true, .part = "text_config"};
  const std::string begin = "model.vision_tower.", joins = "model.multi_modal_projector.";
  tower.begins = {{"model.", "model.language_model."}};
  tower.form.layers = begin + "transformer.layers.";
  tower.form.names = {{"attention_norm", "ln1"},
                      {"ffn_norm", "ln2"},
                      {"attention.q_proj", "attn_q", {.rows = neighbours_of_queries}},
                      {"attention.k_proj", "attn_k", {.rows = neighbours_of_queries}},
                      {"attention.v_proj", "attn_v"},
                      {"attention.o_proj", "attn_out"},
                      {"feed_forward.gate_proj", "ffn_gate"},
                      {"feed_forward.up_proj", "ffn_up"},
                      {"feed_forward.down_proj", "ffn_down"},
                      {begin + "patch_conv", "v.patch_embd"},
                      {begin + "ln_pre", "v.pre_ln"},
                      {joins + "linear_1", "mm.1"},
                      {joins + "linear_2", "mm.2"}};
  tower.form.keys = usual_tower_keys();
  tower.form.keys.pop_back();  // what norms add is always the same
  tower.says = {{"vision_config", {{"model_type", "pixtral"}, {"num_channels", 3}, {"rope_theta", 1e4}}}};
  tower.tokens = {{"image_token_index", "[IMG]"}};
  tower.row = {"[IMG_BREAK]", "v.token_embd.img_break"};
  tower.read = read_file_of_pixtral, tower.write = write_file_of_pixtral;
  return tower;
}

}  // namespace apus
