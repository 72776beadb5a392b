// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (text): norms before and after each branch whose weights count from one, normalised heads, five sliding
// layers to one full one, which has rotary settings of its own.
#include <cmath>

#include "base/error.h"
#include "gguf/words.h"
#include "models/families/gemma2.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::gemma3_text {

namespace {
// Never scaled. Files of transformers 5 hold one set for each kind of layer, earlier ones this number.
RopeSpec local_rope(const Config& c, const ModelShape& shape) {
  if (const Json* sets = c.find("rope_parameters"); sets && sets->contains("sliding_attention"))
    return read_rope(c, shape.head_dim, shape.max_positions, {.of = RopeOf::SlidingLayers});
  return {.dim = shape.head_dim,
          .theta = c.number("rope_local_base_freq", 1e4),
          .original_positions = static_cast<double>(shape.max_positions)};
}

DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.kv_heads = 4,
                                      .positions = 131072,
                                      .head_dim = 256,
                                      .tied = true,
                                      .rope = {.theta = 1e6, .of = RopeOf::FullLayers}});
  const ModelShape& shape = spec.shape;
  gemma2::use_layers(c, spec);
  spec.norm.kind = NormKind::RmsFromOne;
  spec.attention = {.qkv_bias = c.flag("attention_bias", false),
                    .out_bias = c.flag("attention_bias", false),
                    .qk_norm = QkNorm::Head,
                    .scale = 1 / std::sqrt(c.number("query_pre_attn_scalar", 256))};
  const int64_t pattern = c.integer("sliding_window_pattern", c.integer("_sliding_window_pattern", 6));
  require(pattern > 0, Fault::Model, "config.json: sliding_window_pattern must be above 0");
  spec.window = read_windows(c, shape.layers, all_but_every(pattern));
  turn_sliding_layers(spec, local_rope(c, shape));
  spec.logit_softcap = read_softcap(c, "final_logit_softcapping", 0);  // of attention's there is none here
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gemma3-270m", 640, 18, 4, 1, 256, 2048, 262144, 32768, 1e6, true, {}, {{"sliding_window", 512}}},
    {"gemma3-1b", 1152, 26, 4, 1, 256, 6912, 262144, 32768, 1e6, true, {}, {{"sliding_window", 512}}},
};

// How it stands in GGUF files.
// The largest model divides scores by another number than the size of a head.
void read_gguf(const GgufSays&, Json& config) {
  const GgufSizes s = GgufSizes::of_config(config);
  config["query_pre_attn_scalar"] = s.layers == 62 ? s.hidden / s.heads : s.head_dim;
}

const GgufForm gguf = {
    .architecture = "gemma3",
    .names = words::norms_around(),
    .keys = {{"final_logit_softcapping", "final_logit_softcapping", GgufKey::Number}, words::window()},
    .says = {{"hidden_activation", "gelu_pytorch_tanh"},
             {"rope_local_base_freq", 10000.0},
             {"sliding_window_pattern", 6}},
    .read = read_gguf,
    .from_one = true};

const RegisterFamily gemma3("gemma3_text", {.title = "Gemma 3 (text)",
                                            .architecture = "Gemma3ForCausalLM",
                                            .read = read,
                                            .says = {{"hidden_activation", "gelu_pytorch_tanh"},
                                                     {"query_pre_attn_scalar", 256},
                                                     {"rope_local_base_freq", 1e4}},
                                            .presets = presets,
                                            .gguf = gguf});
}  // namespace

}  // namespace apus::families::gemma3_text
