// SPDX-License-Identifier: Apache-2.0
#include "models/spec/read_gpt.h"

#include "models/spec/read_decoder.h"

namespace apus {

Json gpt_words(const Config& c) {
  Json all = in_usual_words(c, {{"n_embd", "hidden_size"},
                                {"n_layer", "num_hidden_layers"},
                                {"n_head", "num_attention_heads"},
                                {"n_positions", "max_position_embeddings"},
                                {"n_inner", "intermediate_size"},
                                {"activation_function", "hidden_act"}});
  all["num_key_value_heads"] = Config(all).integer("num_attention_heads");  // these families know no fewer
  if (!all.contains("intermediate_size")) all["intermediate_size"] = 4 * Config(all).integer("hidden_size");
  return all;
}

void use_gpt_names(const Config& words, DecoderSpec& spec, const char* act) {
  spec.backbone = "transformer", spec.embed_name = "wte", spec.layers_name = "h", spec.final_norm = "ln_f";
  spec.attention_name = "attn";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = words.number("layer_norm_epsilon", 1e-5)};
  spec.norms = {.before_attention = "ln_1", .before_feed_forward = "ln_2"};
  spec.act = read_activation(words, "hidden_act", act);
}

void use_gpt_positions(DecoderSpec& spec, const char* name, int64_t before) {
  spec.position_table = PositionTable{.name = name, .before = before};
  turn_only(spec, [](size_t) { return false; });
}

void use_opt_layers(DecoderSpec& spec, bool bias) {
  spec.dense_name = "";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = 1e-5};
  spec.norms = {.before_attention = "self_attn_layer_norm", .before_feed_forward = "final_layer_norm"};
  spec.attention.qkv_bias = spec.attention.out_bias = bias;
  spec.attention.out_name = "out_proj";
  use_plain(spec, {.up = "fc1", .down = "fc2"}, bias);
}

}  // namespace apus
