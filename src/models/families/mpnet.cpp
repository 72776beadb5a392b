// SPDX-License-Identifier: Apache-2.0
// MPNet: BERT's layers without types, and scores get a learnt number for the distance of query and key.
#include "models/spec/family.h"
#include "models/spec/read_encoder.h"

namespace apus::families::mpnet {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_bert(c, "mpnet", {.vocab = 30527, .types = 0, .before = 2, .pad = 1});
  spec.encoder->types = 0;
  spec.encoder->head = roberta_head();
  spec.encoder->distances_name = "encoder.relative_attention_bias";
  spec.norms.after_attention = "attention.LayerNorm";
  AttentionForm& attention = spec.attention;
  attention.by_distance = true;
  attention.q_name = "attn.q", attention.k_name = "attn.k", attention.v_name = "attn.v", attention.out_name = "attn.o";
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"mpnet-base", 768, 12, 12, 12, 0, 3072, 30527, 514, 1e4, true},
};

const RegisterFamily mpnet("mpnet", {.title = "MPNet",
                                     .architecture = "MPNetModel",
                                     .read = read,
                                     .encoder = true,
                                     .says = {{"hidden_act", "gelu"}, {"layer_norm_eps", 1e-5}},
                                     .presets = presets});
}  // namespace

}  // namespace apus::families::mpnet
