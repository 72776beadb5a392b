// SPDX-License-Identifier: Apache-2.0
// DeepSeek-OCR 2 as transformers writes it (its own files are deepseek_vl_v2): SAM, and queries that read what it
// leaves in a causal order of their own.
#include "base/error.h"
#include "models/families/deepseek_ocr.h"
#include "models/spec/family.h"
#include "models/spec/read_seeing.h"

namespace apus::families::deepseek_ocr2 {

namespace {
QuerySpec read_queries(const Config& c) {
  QuerySpec q;
  q.width = c.integer("hidden_size", 4096), q.layers = c.integer("num_hidden_layers", 32);
  q.heads = c.integer("num_attention_heads", 32), q.kv_heads = c.integer("num_key_value_heads", 32);
  q.ffn = c.integer("intermediate_size", 22016), q.eps = c.number("rms_norm_eps", 1e-6);
  const Json* rope = c.find("rope_parameters");
  q.turn_base = rope ? Config(*rope).number("rope_theta", 1e4) : c.number("rope_theta", 1e4);
  require(q.layers > 0 && q.layers <= 4096 && q.heads > 0 && q.kv_heads > 0 && q.heads % q.kv_heads == 0 &&
              q.width > 0 && q.width % q.heads == 0 && q.ffn > 0 && !c.flag("use_sliding_window", false),
          Fault::Model, "config.json: vision_config: encoder_config: ", q.layers, " layers, ", q.heads, " heads, ",
          q.kv_heads, " of keys, hidden_size ", q.width, " do not fit together, or use_sliding_window is true");
  q.tables = {{"model.qwen2_model.query_768", 144}, {"model.qwen2_model.query_1024", 256}};
  return q;
}

// first_k_dense_replace, by which older files say it.
Json with_first_dense(Json text) {
  const Json layers = text.value("mlp_layer_types", Json());
  if (!layers.is_array()) return text;
  int64_t dense = 0;
  while (dense < std::ssize(layers) && layers[static_cast<size_t>(dense)] == "dense") ++dense;
  for (size_t i = static_cast<size_t>(dense); i < layers.size(); ++i)
    require(layers[i] == "sparse", Fault::Model,
            "config.json: text_config: mlp_layer_types: dense layers behind sparse ones are not supported");
  text["first_k_dense_replace"] = dense;
  return text;
}

DecoderSpec read(const Config& c) {
  const Config vision = part_of(c, "vision_config"), sam = part_of(vision, "sam_config");
  PageSpec page{.sam = read_sam(sam)};
  const std::vector<int64_t> narrow =
      sam.find("downsample_channels") ? sam.integers("downsample_channels") : std::vector<int64_t>{512, 896};
  page.queries = read_queries(part_of(vision, "encoder_config"));
  require(narrow.size() == 2 && narrow[1] == page.queries->width, Fault::Model,
          "config.json: vision_config: the last of two downsample_channels must be the queries' hidden_size, ",
          page.queries->width);
  page.sam.narrow = narrow[0], page.sam.out = narrow[1];
  return read_deepseek_pages(c, with_first_dense(part_of(c, "text_config").json()), std::move(page));
}

Json text_says() {
  return {{"text_config",
           {{"model_type", "deepseek_ocr2_text"},
            {"topk_method", "greedy"},
            {"n_routed_experts", 64},
            {"n_shared_experts", 2},
            {"num_experts_per_tok", 6},
            {"moe_intermediate_size", 896},
            {"first_k_dense_replace", 1}}}};
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"deepseek-ocr-2", 1280, 12, 10, 10, 0, 6848, 129280, 8192, 1e4, false, {}, text_says()},
};

const RegisterFamily ocr2("deepseek_ocr2", {.title = "DeepSeek-OCR 2",
                                            .architecture = "DeepseekOcr2ForConditionalGeneration",
                                            .read = read,
                                            .says = {{"image_token_id", 128815},
                                                     {"vision_config",
                                                      {{"sam_config",
                                                        {{"hidden_size", 768},
                                                         {"num_hidden_layers", 12},
                                                         {"num_attention_heads", 12},
                                                         {"image_size", 1024},
                                                         {"patch_size", 16},
                                                         {"window_size", 14},
                                                         {"global_attn_indexes", {2, 5, 8, 11}},
                                                         {"output_channels", 256},
                                                         {"downsample_channels", {512, 896}}}},
                                                       {"encoder_config",
                                                        {{"hidden_size", 896},
                                                         {"num_hidden_layers", 24},
                                                         {"num_attention_heads", 14},
                                                         {"num_key_value_heads", 2},
                                                         {"intermediate_size", 4864},
                                                         {"rope_theta", 1e6}}}}}},
                                            .presets = presets});
}  // namespace

}  // namespace apus::families::deepseek_ocr2
