// SPDX-License-Identifier: Apache-2.0
// What config.json says of models that put a text model behind a tower that transformers knows by a model_type of its
// own: Llava and those that came after it.
#pragma once

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// siglip_vision_model, clip_vision_model, pixtral. Everything below `model.vision_tower`; without a merger.
VisionSpec read_tower(const Config& vision);
// SigLIP's over one square of `side` pixels, as timm has it (blocks, attn.qkv). Without its name and its merger.
struct TimmSizes {
  int64_t width = 0, layers = 0, heads = 0, ffn = 0, patch = 0, side = 0;
};
VisionSpec timm_siglip(const TimmSizes& sizes);
// SigLIP's, as Idefics 3 and SmolVLM have it under names of their own.
VisionSpec read_idefics_tower(const Config& vision);
// SigLIP's of pictures in their own size, of whose 2 x 2 patches one row is made among the blocks (MiniCPM-V 4.6).
VisionSpec read_minicpm_tower(const Config& vision, int64_t halved_behind);
// The same without that (MiniCPM-V 2.5 to 4.5).
VisionSpec read_minicpm_tower(const Config& vision);
// SigLIP 2's of pictures in their own size (LFM2-VL).
VisionSpec read_siglip2_tower(const Config& vision);
// Gemma 4's: norms on both sides of each branch, a table of positions for columns and one for lines.
VisionSpec read_gemma4_tower(const Config& vision);
// SigLIP's of pictures in their own size, whose patches turn by rows and columns besides, and a projector behind a
// norm, which gives rows of `out` numbers (PaddleOCR-VL).
VisionSpec read_paddle_tower(const Config& vision, int64_t out);
Json paddle_tower_says();
// SigLIP's in a GGUF file, with the settings that are its own; its names begin with this.
// The settings that files of most towers have.
std::vector<GgufKey> usual_tower_keys();
GgufTower siglip_gguf_tower(const std::string& begin);
// And Pixtral's, beside a text of any family.
GgufTower pixtral_gguf_tower();
// CLIP ViT-L/14 of 336 pixels, as the first Llavas' config.json files say it.
Json clip_large_says();
// Pixtral's tower for pages, of pictures of up to 1540 pixels.
Json pixtral_says();
// The norm behind SigLIP's last block is read; elsewhere it stands in the file and is not.
void use_last_norm(VisionSpec& tower);
// vision_feature_layer: blocks behind it are not read. vision_feature_select_strategy must be one that the tower can
// follow: CLIP's first row is left out, others have none.
void use_feature_layer(const Config& config, VisionSpec& tower, int64_t unsaid);
// Two linear layers, linear_1 and linear_2 (projector_hidden_act, multimodal_projector_bias).
void use_two_layers(const Config& config, VisionSpec& tower, int64_t out, bool bias = true);
// Squares of patches become one row behind a norm, then come two linear layers, as in Mistral 3 (spatial_merge_size).
void use_merged_squares(const Config& config, VisionSpec& tower, const DecoderSpec& text);

// text_config, with the sizes that its class in transformers takes where the file leaves them out (the files of the
// first models do); everything below `model.language_model`. `type`: where it has no model_type.
DecoderSpec read_text_part(const Config& config, const std::string& type);

// A decoder that sees through this tower: image_token_id (or image_token_index) stands for what it makes.
DecoderSpec with_tower(const Config& config, DecoderSpec text, SeeingSpec seeing);

}  // namespace apus
