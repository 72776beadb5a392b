// SPDX-License-Identifier: Apache-2.0
// GOT-OCR 2.0 in transformers' layout: SAM alone before Qwen2.
#include "models/families/got_ocr2.h"

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/page_spec.h"
#include "models/spec/read_seeing.h"
#include "models/spec/read_tower.h"

namespace apus {

DecoderSpec with_page(DecoderSpec spec, PageSpec page, const std::string& aligner, int64_t token,
                      std::vector<DiskForm> forms) {
  SeeingSpec seeing = page_sight(spec, std::move(page), token);
  seeing.language = {spec.backbone, spec.head_name}, seeing.tower = {seeing.page->sam.name};
  seeing.aligner = {aligner}, seeing.forms = std::move(forms);
  spec.seeing = std::make_shared<const SeeingSpec>(std::move(seeing));
  return spec;
}

Json got_sam_says() {
  return {{"hidden_size", 768},
          {"num_hidden_layers", 12},
          {"num_attention_heads", 12},
          {"image_size", 1024},
          {"patch_size", 16},
          {"window_size", 14},
          {"global_attn_indexes", {2, 5, 8, 11}},
          {"output_channels", 256},
          {"mlp_dim", 3072}};
}

}  // namespace apus

namespace apus::families::got_ocr2 {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_text_part(c, "qwen2");
  PageSpec page{.sam = read_sam(part_of(c, "vision_config"))};
  SamSpec& sam = page.sam;
  sam.name = "model.vision_tower", sam.narrow = 2 * sam.neck, sam.out = spec.shape.hidden;
  sam.names.patches = "patch_embed.projection", sam.names.blocks = "layers";
  sam.names.norm1 = "layer_norm1", sam.names.norm2 = "layer_norm2";
  sam.names.neck = "neck.conv1", sam.names.neck_norm = "neck.layer_norm1";
  sam.names.neck_wide = "neck.conv2", sam.names.neck_end = "neck.layer_norm2";
  const std::string joins = "model.multi_modal_projector.";
  sam.names.narrow = joins + "conv_upsampler1", sam.names.narrower = joins + "conv_upsampler2";
  page.projector = joins + "multimodal_projector", page.out = spec.shape.hidden;
  spec.tied = c.flag("tie_word_embeddings", spec.tied);
  return with_page(std::move(spec), std::move(page), "model.multi_modal_projector",
                   c.integer(c.find("image_token_id") ? "image_token_id" : "image_token_index", 151859),
                   {{.renames = {{"model.language_model.", "language_model.model."},
                                 {"lm_head.", "language_model.lm_head."},
                                 {"model.vision_tower.", "vision_tower."},
                                 {joins, "multi_modal_projector."}}},
                    {}});
}

Json qwen2_says() { return {{"text_config", {{"model_type", "qwen2"}, {"architectures", {"Qwen2ForCausalLM"}}}}}; }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"got-ocr-2.0-hf", 1024, 24, 16, 16, 64, 2816, 151860, 32768, 1e6, true, {}, qwen2_says()},
};

const RegisterFamily got("got_ocr2", {.title = "GOT-OCR 2.0",
                                      .architecture = "GotOcr2ForConditionalGeneration",
                                      .read = read,
                                      .says = {{"image_token_index", 151859}, {"vision_config", got_sam_says()}},
                                      .presets = presets});
}  // namespace

}  // namespace apus::families::got_ocr2
