// SPDX-License-Identifier: Apache-2.0
// CodeGen 1 and 2: GPT-J with one matrix for queries, values and keys, in four parts.
#include "base/error.h"
#include "models/families/gptj.h"
#include "models/spec/family.h"

namespace apus::families::codegen {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_gptj(c);
  require(spec.shape.heads % 4 == 0, Fault::Model, "config.json: ", spec.shape.heads,
          " heads are no multiple of 4, as this family's four parts need it");
  spec.attention.fused = Fused::Quarters;
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"codegen-350m", 1024, 20, 16, 16, 0, 4096, 51200, 2048, 1e4, false, {}, {{"rotary_dim", 32}}},
    {"codegen-2b", 2560, 32, 32, 32, 0, 10240, 51200, 2048, 1e4, false},
};

const RegisterFamily codegen("codegen", {.title = "CodeGen",
                                         .architecture = "CodeGenForCausalLM",
                                         .read = read,
                                         .says = {{"rotary_dim", 64}, {"hidden_act", "gelu_new"}},
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::codegen
