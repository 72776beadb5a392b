// SPDX-License-Identifier: Apache-2.0
// XGLM: OPT with scaled embeddings, gelu, and positions told by waves.
#include <cmath>

#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus::families::xglm {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = in_usual_words(c, {{"d_model", "hidden_size"},
                                      {"num_layers", "num_hidden_layers"},
                                      {"attention_heads", "num_attention_heads"},
                                      {"ffn_dim", "intermediate_size"},
                                      {"activation_function", "hidden_act"}});
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048, .tied = true});
  require(!c.flag("add_cross_attention", false) && spec.shape.hidden % 2 == 0 && spec.shape.hidden > 2, Fault::Model,
          "config.json: add_cross_attention, or an odd d_model, is not known in this family");
  spec.act = read_activation(Config(all), "hidden_act", "gelu");
  spec.final_norm = "layer_norm";
  use_gpt_positions(spec, "", 2);  // no file holds them
  if (c.flag("scale_embedding", true)) spec.embedding_scale = std::sqrt(static_cast<double>(spec.shape.hidden));
  use_opt_layers(spec, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"xglm-564m", 1024, 24, 16, 16, 0, 4096, 256008, 2048, 1e4, true},
    {"xglm-7.5b", 4096, 32, 32, 32, 0, 16384, 256008, 2048, 1e4, true},
};

const RegisterFamily xglm("xglm", {.title = "XGLM",
                                   .architecture = "XGLMForCausalLM",
                                   .read = read,
                                   .says = {{"hidden_act", "gelu"}, {"pad_token_id", 1}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::xglm
