// SPDX-License-Identifier: Apache-2.0
// MPT: positions are told by slopes, no biases.
#include <cmath>

#include "base/error.h"
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::mpt {

namespace {
// 2^-(8 n / heads) for n from 1; where heads are no power of two, of the next one every second and then the others.
// transformers does not look at alibi_bias_max, which is 8 in all files.
std::vector<double> slopes_of(int64_t heads) {
  const auto power = static_cast<int64_t>(std::exp2(std::ceil(std::log2(static_cast<double>(heads)))));
  std::vector<double> all, out;
  for (int64_t n = 1; n <= power; ++n)
    all.push_back(std::exp2(-8.0 * static_cast<double>(n) / static_cast<double>(power)));
  if (power == heads) return all;
  for (const size_t first : {1, 0})
    for (size_t i = first; i < all.size(); i += 2) out.push_back(all[i]);
  out.resize(static_cast<size_t>(heads));
  return out;
}

DecoderSpec read(const Config& c) {
  Json all = in_usual_words(c, {{"d_model", "hidden_size"},
                                {"n_layers", "num_hidden_layers"},
                                {"n_heads", "num_attention_heads"},
                                {"max_seq_len", "max_position_embeddings"}});
  all["intermediate_size"] = 4 * Config(all).integer("hidden_size");
  static const Json none = Json::object();
  const Json* said = c.find("attn_config");
  const Config attention(said ? *said : none);
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048, .tied = true});
  require(attention.flag("alibi", true) && !attention.flag("qk_ln", false) && !attention.flag("prefix_lm", false) &&
              attention.text("attn_type", "multihead_attention") == "multihead_attention" && c.flag("no_bias", true),
          Fault::Model,
          "config.json: MPT without alibi, or with qk_ln, prefix_lm, biases or shared keys, is not known");
  spec.act = Activation::Gelu;
  spec.backbone = "transformer", spec.embed_name = "wte", spec.layers_name = "blocks", spec.final_norm = "norm_f";
  spec.attention_name = "attn", spec.dense_name = "ffn";
  spec.norm = {.kind = NormKind::Mean, .eps = c.number("layer_norm_epsilon", 1e-5)};
  spec.norms = {.before_attention = "norm_1", .before_feed_forward = "norm_2"};
  spec.attention = {.fused = Fused::Blocks,
                    .fused_name = "Wqkv",
                    .out_name = "out_proj",
                    .clip = attention.number("clip_qkv", 0),
                    .scale = attention.number("softmax_scale", 0)};
  use_slopes(spec, slopes_of(spec.shape.heads));
  use_plain(spec, {.up = "up_proj", .down = "down_proj"}, false);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mpt-7b", 4096, 32, 32, 32, 0, 16384, 50432, 2048, 1e4, true},
    {"mpt-30b", 7168, 48, 64, 64, 0, 28672, 50432, 8192, 1e4, true},
};

// How it stands in GGUF files.
void read_gguf(const GgufSays& file, Json& config) {
  const auto clip = file.number("attention.clamp_kqv");
  config["attn_config"] = {{"alibi", true}, {"clip_qkv", clip && *clip > 0 ? Json(*clip) : Json()}};
}
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  constexpr double kLargestBias = 8;
  out.number("attention.max_alibi_bias", kLargestBias);
  const Json clip = config.value("attn_config", Json::object()).value("clip_qkv", Json());
  if (clip.is_number()) out.number("attention.clamp_kqv", clip.get<double>());
}

const GgufForm gguf = {.architecture = "mpt",
                       .names = {{"transformer.wte", "token_embd"},
                                 {"transformer.norm_f", "output_norm"},
                                 {"norm_1", "attn_norm"},
                                 {"norm_2", "ffn_norm"},
                                 {"attn.Wqkv", "attn_qkv"},
                                 {"attn.out_proj", "attn_output"},
                                 {"ffn.up_proj", "ffn_up"},
                                 {"ffn.down_proj", "ffn_down"}},
                       .layers = "transformer.blocks.",
                       .eps = words::mean_eps("layer_norm_epsilon"),
                       .read = read_gguf,
                       .write = write_gguf};

const RegisterFamily mpt(
    "mpt", {.title = "MPT", .architecture = "MptForCausalLM", .read = read, .presets = presets, .gguf = gguf});
}  // namespace

}  // namespace apus::families::mpt
