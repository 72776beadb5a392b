// SPDX-License-Identifier: Apache-2.0
// OPT: positions are looked up in a table, biases everywhere, relu.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus::families::opt {

namespace {
DecoderSpec read(const Config& c) {
  const Json all = in_usual_words(c, {{"ffn_dim", "intermediate_size"}, {"activation_function", "hidden_act"}});
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048, .ffn = 3072, .tied = true});
  require(c.flag("do_layer_norm_before", true) && !c.flag("_remove_final_layer_norm", false) &&
              c.integer("word_embed_proj_dim", spec.shape.hidden) == spec.shape.hidden,
          Fault::Model,
          "config.json: OPT with norms behind the sums, or embeddings of another width (opt-350m), is not known");
  spec.act = read_activation(Config(all), "hidden_act", "relu");
  spec.backbone = "model.decoder", spec.final_norm = "final_layer_norm";
  spec.forms = {{}, {.renames = {{"model.decoder", "decoder"}}}};
  use_gpt_positions(spec, "embed_positions", 2);
  use_opt_layers(spec, c.flag("enable_bias", true));
  if (!c.flag("layer_norm_elementwise_affine", true)) spec.norm.kind = NormKind::MeanAlone;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"opt-125m", 768, 12, 12, 12, 0, 3072, 50272, 2048, 1e4, true},
    {"opt-1.3b", 2048, 24, 32, 32, 0, 8192, 50272, 2048, 1e4, true},
    {"opt-6.7b", 4096, 32, 32, 32, 0, 16384, 50272, 2048, 1e4, true},
};

const RegisterFamily opt("opt", {.title = "OPT",
                                 .architecture = "OPTForCausalLM",
                                 .read = read,
                                 .says = {{"hidden_act", "relu"}},
                                 .presets = presets});
}  // namespace

}  // namespace apus::families::opt
