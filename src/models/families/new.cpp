// SPDX-License-Identifier: Apache-2.0
// GTE by the code that its files bring, which calls it "new".
#include "base/error.h"
#include "models/families/gte.h"
#include "models/spec/family.h"

namespace apus::families::new_model {

namespace {
DecoderSpec read(const Config& c) {
  require(c.text("position_embedding_type", "rope") == "rope" && c.flag("pack_qkv", true) &&
              c.text("layer_norm_type", "layer_norm") == "layer_norm" && !c.flag("logn_attention_scale", false),
          Fault::Model,
          "config.json: of this family position_embedding_type rope, pack_qkv, layer_norm_type layer_norm and no "
          "logn_attention_scale are known");
  Json words = c.json();
  // Their `ntk` stretches the base, whatever the text's length.
  if (const Json* scaling = c.find("rope_scaling"); scaling && scaling->is_object()) {
    const Config rope(*scaling);
    require(rope.text("type", "") == "ntk" && !rope.find("mixed_b"), Fault::Model,
            "config.json: rope_scaling is not known in this family but for the type ntk without mixed_b");
    words["rope_theta"] = c.number("rope_theta", 10000) * rope.number("factor", 1);
    words.erase("rope_scaling");
  }
  return read_gte(Config(words), "new");
}

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"gte-base-en-v1.5", 768, 12, 12, 12, 0, 3072, 30528, 8192, 1e6, true},
};

const RegisterFamily gte_of_files("new", {.title = "GTE by its files' own code",
                                          .architecture = "NewModel",
                                          .read = read,
                                          .encoder = true,
                                          .says = {{"hidden_act", "gelu"}, {"type_vocab_size", 0}},
                                          .presets = presets});
}  // namespace

}  // namespace apus::families::new_model
