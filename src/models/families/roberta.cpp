// SPDX-License-Identifier: Apache-2.0
// RoBERTa: BERT whose positions stand behind the padding's in their table, and whose head has its own layer.
#include "models/spec/family.h"
#include "models/spec/read_encoder.h"

namespace apus::families::roberta {

namespace {
DecoderSpec read(const Config& c) { return read_roberta(c, 50265); }

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"roberta-base", 768, 12, 12, 12, 0, 3072, 50265, 514, 1e4, true},
    {"roberta-large", 1024, 24, 16, 16, 0, 4096, 50265, 514, 1e4, true},
};

const RegisterFamily roberta("roberta",
                             {.title = "RoBERTa",
                              .architecture = "RobertaModel",
                              .read = read,
                              .encoder = true,
                              .says = {{"hidden_act", "gelu"}, {"type_vocab_size", 1}, {"layer_norm_eps", 1e-5}},
                              .presets = presets});
}  // namespace

}  // namespace apus::families::roberta
