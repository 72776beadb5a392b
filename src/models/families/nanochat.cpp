// SPDX-License-Identifier: Apache-2.0
// nanochat: norms without weights, of the embedding, and of queries and keys after they are turned, backwards; the
// square of relu.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::nanochat {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 2048});
  spec.act = read_activation(c, "hidden_act", "relu2");
  spec.norm.kind = NormKind::RmsAlone;
  spec.embedding_norm = "norm_of_embedding";
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  spec.attention.qk_norm = QkNorm::HeadAfterRope;
  spec.ropes[0].backwards = true;
  spec.logit_softcap = read_softcap(c, "final_logit_softcapping", 15);
  use_plain(spec, {.up = "fc1", .down = "fc2"}, false);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"nanochat-d20", 1280, 20, 10, 10, 0, 5120, 65536, 2048, 1e4, false},
    {"nanochat-d32", 2048, 32, 16, 16, 0, 8192, 65536, 2048, 1e4, false},
};

const RegisterFamily nanochat("nanochat", {.title = "nanochat",
                                           .architecture = "NanoChatForCausalLM",
                                           .read = read,
                                           .says = {{"hidden_act", "relu2"}},
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::nanochat
