// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_qwen3_next.h"

#include "models/spec/guess_form.h"
#include "models/spec/read_qwen3_vl.h"
#include "models/spec/read_state.h"

namespace apus {

DecoderSpec read_gated_decoder(const Config& c, int64_t kv_heads, int64_t ffn, bool apart) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = kv_heads, .ffn = ffn, .head_dim = 256, .rope = {.turned = 0.25}});
  spec.norm.kind = NormKind::RmsFromOne;
  spec.attention.gated = true;
  spec.attention.qk_norm = QkNorm::Head;
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  const DeltaForm form{.key_heads = c.integer("linear_num_key_heads", 16),
                       .value_heads = c.integer("linear_num_value_heads", 32),
                       .key_dim = c.integer("linear_key_head_dim", 128),
                       .value_dim = c.integer("linear_value_head_dim", 128),
                       .taps = c.integer("linear_conv_kernel_dim", 4),
                       .apart = apart};
  const int64_t every = c.integer("full_attention_interval", 4);
  use_states(c, spec, form, read_layer_types(c, spec.shape.layers, [&](int64_t layer) {
               return every > 0 && (layer + 1) % every == 0 ? Keeps::Tokens : Keeps::State;
             }));
  use_guess_head(spec, {.name = "mtp",
                        .layer = "layers.0",
                        .inside = false,
                        .token_norm = "pre_fc_norm_embedding",
                        .state_norm = "pre_fc_norm_hidden",
                        .join = "fc",
                        .end_norm = "norm"});
  return spec;
}

namespace {
// How images are placed, where the file does not say it.
DecoderSpec placing_images(DecoderSpec spec) {
  for (RopeSpec& rope : spec.ropes) {
    if (rope.sections.empty()) rope.sections = {11, 11, 10};
    rope.interleaved_sections = true;
  }
  return spec;
}
}  // namespace

DecoderSpec read_qwen3_5(const Config& c) { return placing_images(read_gated_decoder(c, 4, 12288, true)); }

DecoderSpec read_qwen3_5_moe(const Config& c) {
  // No layer is dense, and files name no width of such a one.
  DecoderSpec spec = placing_images(read_gated_decoder(c, 2, 512, true));
  use_experts(c, spec,
              {.experts = read_expert_count(c),
               .per_token = c.integer("num_experts_per_tok", 8),
               .ffn = c.integer("moe_intermediate_size", 512),
               .shared_ffn = c.integer("shared_expert_intermediate_size", 512),
               .router = {.normalise = true}},
              [](int64_t) { return true; });
  return spec;
}

Json delta_says() {
  return {{"full_attention_interval", 4}, {"linear_num_key_heads", 16},   {"linear_num_value_heads", 32},
          {"linear_key_head_dim", 128},   {"linear_value_head_dim", 128}, {"linear_conv_kernel_dim", 4}};
}

Json qwen3_5_says() {
  Json says = delta_says();
  says["rope_parameters"] = {{"rope_type", "default"},
                             {"rope_theta", 1e7},
                             {"partial_rotary_factor", 0.25},
                             {"mrope_section", {11, 11, 10}},
                             {"mrope_interleaved", true}};
  return says;
}

Json qwen3_5_tower_says(int64_t out) {
  Json says = qwen3_tower_says(out, false);
  says["vision_config"].erase("deepstack_visual_indexes");
  says.update({{"image_token_id", 248056},
               {"video_token_id", 248057},
               {"vision_start_token_id", 248053},
               {"vision_end_token_id", 248054}});
  return says;
}

}  // namespace apus
