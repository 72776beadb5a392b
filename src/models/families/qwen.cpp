// SPDX-License-Identifier: Apache-2.0
// Qwen 1, by the code that its files bring: queries, keys and values in one matrix with a bias; the gate's names are
// its own.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::qwen {

namespace {
DecoderSpec read(const Config& c) {
  Json all = in_usual_words(c, {{"kv_channels", "head_dim"},
                                {"rotary_emb_base", "rope_theta"},
                                {"rotary_pct", "partial_rotary_factor"},
                                {"layer_norm_epsilon", "rms_norm_eps"}});
  // Beyond this length the original stretches angles and queries, which is not done here.
  if (const Json* length = c.find("seq_length")) all["max_position_embeddings"] = *length;
  // The file counts gate and up.
  if (all.contains("intermediate_size")) all["intermediate_size"] = Config(all).integer("intermediate_size") / 2;
  DecoderSpec spec = read_decoder(Config(all), {.positions = 8192});
  const bool bias = !c.flag("no_bias", true);
  spec.backbone = "transformer", spec.embed_name = "wte", spec.layers_name = "h", spec.final_norm = "ln_f";
  spec.attention_name = "attn";
  spec.norms = {.before_attention = "ln_1", .before_feed_forward = "ln_2"};
  spec.attention = {
      .qkv_bias = true, .out_bias = bias, .fused = Fused::Blocks, .fused_name = "c_attn", .out_name = "c_proj"};
  use_kind(spec, FeedForwardKind::Gated, bias);
  use_names(spec, {.gate = "w2", .up = "w1", .down = "c_proj"});
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"qwen1-1.8b", 2048, 24, 16, 16, 128, 11008, 151936, 8192, 1e4, false},
    {"qwen1-7b", 4096, 32, 32, 32, 128, 22016, 151936, 8192, 1e4, false},
    {"qwen1-14b", 5120, 40, 40, 40, 128, 27392, 152064, 8192, 1e4, false},
};

// How it stands in GGUF files.
// As in config.json, gate and up are counted together.
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  out.whole("feed_forward_length", config.value("intermediate_size", int64_t{0}));
}

const GgufForm gguf = {.architecture = "qwen",
                       .names = {{"transformer.wte", "token_embd"},
                                 {"transformer.ln_f", "output_norm"},
                                 {"ln_1", "attn_norm"},
                                 {"ln_2", "ffn_norm"},
                                 {"attn.c_attn", "attn_qkv"},
                                 {"attn.c_proj", "attn_output"},
                                 {"mlp.w2", "ffn_gate"},
                                 {"mlp.w1", "ffn_up"},
                                 {"mlp.c_proj", "ffn_down"}},
                       .layers = "transformer.h.",
                       .write = write_gguf};

const RegisterFamily qwen("qwen", {.title = "Qwen 1",
                                   .architecture = "QWenLMHeadModel",
                                   .read = read,
                                   .says = {{"no_bias", true}},
                                   .presets = presets,
                                   .gguf = gguf});
}  // namespace

}  // namespace apus::families::qwen
