// SPDX-License-Identifier: Apache-2.0
// DeepSeek-OCR (whose files call it deepseek_vl_v2, as those of DeepSeek-VL2 do, and of DeepSeek-OCR 2): SAM, CLIP's
// layers over what it leaves, both joined; a text model of experts with usual attention.
#include "base/error.h"
#include "media/mosaic.h"
#include "models/families/deepseek_ocr.h"
#include "models/spec/family.h"
#include "models/spec/read_deepseek_vl2.h"
#include "models/spec/read_seeing.h"

namespace apus {

Json width_of(const Config& vision, const char* part) {
  const Json* width = vision.find("width");
  require(width && width->is_object() && width->contains(part) && (*width)[part].is_object(), Fault::Model,
          "config.json: vision_config: 'width' lacks '", part, "'");
  return (*width)[part];
}

SamSpec read_own_sam(const Config& vision) {
  Json sam = width_of(vision, "sam_vit_b");
  for (const auto& [theirs, ours] :
       {std::pair{"width", "hidden_size"}, {"layers", "num_hidden_layers"}, {"heads", "num_attention_heads"}})
    if (sam.contains(theirs)) sam[ours] = sam[theirs];
  if (!sam.contains("image_size")) sam["image_size"] = vision.integer("image_size", 1024);
  SamSpec s = read_sam(Config(sam));
  const std::vector<int64_t> narrow = sam.contains("downsample_channels") ? Config(sam).integers("downsample_channels")
                                                                          : std::vector<int64_t>{512, 1024};
  require(narrow.size() == 2, Fault::Model, "config.json: vision_config: downsample_channels must be two numbers");
  s.narrow = narrow[0], s.out = narrow[1];
  return s;
}

DecoderSpec read_deepseek_pages(const Config& c, Json text, PageSpec page) {
  const bool latent =
      text.value("use_mla", false) || (text.contains("kv_lora_rank") && text["kv_lora_rank"].is_number());
  require(!latent, Fault::Model, "config.json: a text part with latent attention (use_mla) is not supported here");
  const std::string method = text.contains("topk_method") && text["topk_method"].is_string()
                                 ? text["topk_method"].get<std::string>()
                                 : "greedy";
  require(method == "greedy" && text.value("routed_scaling_factor", 1.0) == 1.0, Fault::Model,
          "config.json: topk_method '", method, "' and routed_scaling_factor other than 1 are not supported here");
  text["model_type"] = "deepseek";
  DecoderSpec spec = read_language(Config(text), "");
  spec.tied = c.flag("tie_word_embeddings", false);
  page.sam.name = "model.sam_model";
  page.sam.names.narrow = "model.sam_model.net_2", page.sam.names.narrower = "model.sam_model.net_3";
  page.projector = "model.projector.layers", page.separator = "model.view_seperator", page.out = spec.shape.hidden;
  SeeingSpec seeing = page_sight(spec, std::move(page), c.integer("image_token_id", 128815));
  const PageSpec& sees = *seeing.page;
  seeing.language = {"model.embed_tokens", "model.layers", "model.norm", "lm_head"};
  seeing.tower = {sees.sam.name, sees.clip ? sees.clip->name : "model.qwen2_model"};
  seeing.aligner = {sees.projector, sees.separator};
  if (!sees.newline.empty()) seeing.aligner.push_back(sees.newline);
  seeing.forms = {{}};
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

}  // namespace apus

namespace apus::families::deepseek_vl_v2 {

namespace {
VisionSpec read_clip(const Config& vision) {
  const Json said = width_of(vision, "clip-l-14-224");
  const Config c(said);
  VisionSpec s;
  s.width = c.integer("width", 1024), s.layers = c.integer("layers", 24), s.heads = c.integer("heads", 16);
  s.ffn = 4 * s.width;
  const int64_t image = c.integer("image_size", 224), patch = c.integer("patch_size", 14);
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && patch > 0 &&
              image >= patch,
          Fault::Model, "config.json: vision_config: clip-l-14-224: ", s.layers, " layers, ", s.heads, " heads, width ",
          s.width, " and patch_size ", patch, " do not fit together");
  s.name = "model.vision_model", s.reads_rows = true;
  s.merge = s.time_patch = 1, s.patch_has_time = false, s.turned = false;
  s.norm = {NormKind::MeanAndBias, 1e-5}, s.act = TowerActivation::QuickGelu;
  s.first_in_table = true, s.table_side = image / patch, s.table_form = TableForm::Smooth;
  VisionNames& n = s.names;
  n.first = "embeddings.class_embedding", n.table = "embeddings.position_embedding", n.norm_in = "pre_layrnorm";
  n.blocks = "transformer.layers", n.norm1 = "layer_norm1", n.norm2 = "layer_norm2";
  n.qkv = "self_attn.qkv_proj", n.proj = "self_attn.out_proj";
  n.merger_norm = n.merger_in = n.merger_out = nullptr;
  return s;
}

// DeepSeek-OCR 2's own files: the queries' model is not said, but for its width.
QuerySpec own_queries(const Config& vision) {
  const Json said = width_of(vision, "qwen2-0-5b");
  const Config c(said);
  QuerySpec q;
  q.width = c.integer("dim", 896), q.layers = c.integer("layers", 24), q.heads = c.integer("heads", 14);
  q.kv_heads = c.integer("kv_heads", 2), q.ffn = c.integer("ffn", 4864);
  q.tables = {{"model.qwen2_model.query_768", 144}, {"model.qwen2_model.query_1024", 256}};
  require(q.layers > 0 && q.heads > 0 && q.kv_heads > 0 && q.heads % q.kv_heads == 0 && q.width > 0 &&
              q.width % q.heads == 0,
          Fault::Model, "config.json: vision_config: qwen2-0-5b: ", q.heads, " heads of a width of ", q.width,
          " do not fit together");
  return q;
}

DecoderSpec read(const Config& c) {
  if (is_deepseek_vl2(c.json())) return read_deepseek_vl2(c);
  const Config vision = part_of(c, "vision_config");
  const Json* width = vision.find("width");
  const bool one = width && width->is_object() && width->contains("clip-l-14-224");
  const bool two = width && width->is_object() && width->contains("qwen2-0-5b");
  require(one || two, Fault::Model, "config.json: vision_config: model_name '", vision.text("model_name", ""),
          "': of the models called deepseek_vl_v2, DeepSeek-VL2, DeepSeek-OCR and DeepSeek-OCR 2 are read");
  PageSpec page{.sam = read_own_sam(vision)};
  if (one) {
    page.clip = read_clip(vision);
    require(page.clip->width == page.sam.out, Fault::Model, "config.json: vision_config: CLIP's width ",
            page.clip->width, " must be that of SAM's rows, ", page.sam.out);
    page.newline = "model.image_newline";
    const std::string tag = c.text("tile_tag", "2D");
    require(tag == "2D", Fault::Model, "config.json: tile_tag '", tag, "' is not supported, only '2D'");
  } else {
    page.queries = own_queries(vision);
    require(page.queries->width == page.sam.out, Fault::Model, "config.json: vision_config: the queries' width ",
            page.queries->width, " must be that of SAM's rows, ", page.sam.out);
  }
  return read_deepseek_pages(c, part_of(c, "language_config").json(), std::move(page));
}

Json ocr_says() {
  return {{"language_config",
           {{"architectures", {"DeepseekV2ForCausalLM"}},
            {"use_mla", false},
            {"topk_method", "greedy"},
            {"n_routed_experts", 64},
            {"n_shared_experts", 2},
            {"num_experts_per_tok", 6},
            {"moe_intermediate_size", 896},
            {"first_k_dense_replace", 1}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-ocr", 1280, 12, 10, 10, 0, 6848, 129280, 8192, 1e4, false, {}, ocr_says()},
    {"deepseek-vl2-tiny", 1280, 12, 10, 10, 0, 6848, 129280, 4096, 1e4, false, {}, deepseek_vl2_says("tiny")},
    {"deepseek-vl2-small", 2048, 27, 16, 16, 0, 10944, 102400, 4096, 1e4, false, {}, deepseek_vl2_says("small")},
    {"deepseek-vl2", 2560, 30, 32, 32, 0, 12288, 129280, 4096, 1e4, false, {}, deepseek_vl2_says("")},
};

const RegisterFamily ocr(
    "deepseek_vl_v2",
    {.title = "DeepSeek-OCR, DeepSeek-VL2",
     .architecture = "DeepseekOCRForCausalLM",
     .read = read,
     .says = {{"image_token_id", 128815},
              {"tile_tag", "2D"},
              {"global_view_pos", "head"},
              {"projector_config", {{"input_dim", 2048}, {"n_embed", 1280}, {"projector_type", "linear"}}},
              {"vision_config",
               {{"image_size", 1024},
                {"model_name", "deeplip_b_l"},
                {"width",
                 {{"clip-l-14-224",
                   {{"heads", 16}, {"image_size", 224}, {"layers", 24}, {"patch_size", 14}, {"width", 1024}}},
                  {"sam_vit_b",
                   {{"downsample_channels", {512, 1024}},
                    {"global_attn_indexes", {2, 5, 8, 11}},
                    {"heads", 12},
                    {"layers", 12},
                    {"width", 768}}}}}}}},
     .presets = presets});
}  // namespace

}  // namespace apus::families::deepseek_vl_v2
