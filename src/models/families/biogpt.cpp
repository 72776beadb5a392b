// SPDX-License-Identifier: Apache-2.0
// BioGPT: OPT with scaled embeddings and gelu.
#include <cmath>

#include "models/spec/family.h"
#include "models/spec/read_decoder.h"
#include "models/spec/read_gpt.h"

namespace apus::families::biogpt {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_decoder(c, {.positions = 1024, .tied = true});
  spec.act = read_activation(c, "hidden_act", "gelu");
  spec.backbone = "biogpt", spec.final_norm = "layer_norm";
  spec.forms = {{.renames = {{"lm_head", "output_projection"}}}, {}};
  use_gpt_positions(spec, "embed_positions", 2);
  if (c.flag("scale_embedding", true)) spec.embedding_scale = std::sqrt(static_cast<double>(spec.shape.hidden));
  use_opt_layers(spec, true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"biogpt", 1024, 24, 16, 16, 0, 4096, 42384, 1024, 1e4, true},
    {"biogpt-large", 1600, 48, 25, 25, 0, 6400, 57717, 2048, 1e4, true},
};

const RegisterFamily biogpt("biogpt", {.title = "BioGPT",
                                       .architecture = "BioGptForCausalLM",
                                       .read = read,
                                       .says = {{"hidden_act", "gelu"}},
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::biogpt
