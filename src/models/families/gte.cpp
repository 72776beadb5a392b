// SPDX-License-Identifier: Apache-2.0
// GTE: norms of sums as BERT's, rotary positions, gates.
#include "models/families/gte.h"

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_encoder.h"

namespace apus {

DecoderSpec read_gte(const Config& c, const char* backbone) {
  const EncoderDefaults defaults{.vocab = 250048, .positions = 8192, .types = 1, .pad = 1};
  const Json all = with_encoder_sizes(c, defaults);
  DecoderSpec spec = read_decoder(Config(all), {.positions = defaults.positions, .rope = {.theta = 160000}});
  read_both_ways(c, spec, defaults);
  spec.backbone = backbone, spec.layers_name = "encoder.layer";
  spec.embed_name = "embeddings.word_embeddings", spec.embedding_norm = "embeddings.LayerNorm", spec.final_norm = "";
  spec.norm = {.kind = NormKind::MeanAndBias, .eps = c.number("layer_norm_eps", 1e-12)};
  norms_of_sums(spec, "attn_ln", "mlp_ln");
  spec.attention_name = "attention";
  spec.attention.qkv_bias = spec.attention.out_bias = true, spec.attention.fused = Fused::Blocks;
  use_kind(spec, FeedForwardKind::FusedGate);
  use_names(spec, {.up = "up_gate_proj"});
  for (FeedForwardSpec& each : spec.feed_forward)
    std::get<DenseSpec>(each).down_bias = std::get<DenseSpec>(each).gate_last = true;
  EncoderForm& form = *spec.encoder;
  form.types_name = "embeddings.token_type_embeddings";
  form.head.dense = spec.backbone + ".pooler.dense";
  form.unread = {"lm_head.", "pooler.", spec.backbone + ".pooler.", "classifier."};
  return spec;
}

}  // namespace apus

namespace apus::families::gte {

namespace {
DecoderSpec read(const Config& c) { return read_gte(c, "gte"); }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gte-multilingual-base", 768, 12, 12, 12, 0, 3072, 250048, 8192, 16e4, true},
};

const RegisterFamily gte("gte", {.title = "GTE",
                                 .architecture = "GteModel",
                                 .read = read,
                                 .encoder = true,
                                 .says = {{"hidden_act", "gelu"}, {"type_vocab_size", 1}},
                                 .presets = presets});
}  // namespace

}  // namespace apus::families::gte
