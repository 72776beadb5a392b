// SPDX-License-Identifier: Apache-2.0
// XLM-RoBERTa: RoBERTa of many languages.
#include "models/spec/family.h"
#include "models/spec/read_encoder.h"

namespace apus::families::xlm_roberta {

namespace {
DecoderSpec read(const Config& c) { return read_roberta(c, 30522); }

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"xlm-roberta-base", 768, 12, 12, 12, 0, 3072, 250002, 514, 1e4, true},
    {"xlm-roberta-large", 1024, 24, 16, 16, 0, 4096, 250002, 514, 1e4, true},
    {"bge-m3", 1024, 24, 16, 16, 0, 4096, 250002, 8194, 1e4, true},
};

const RegisterFamily xlm_roberta("xlm-roberta",
                                 {.title = "XLM-RoBERTa",
                                  .architecture = "XLMRobertaModel",
                                  .read = read,
                                  .encoder = true,
                                  .says = {{"hidden_act", "gelu"}, {"type_vocab_size", 1}, {"layer_norm_eps", 1e-5}},
                                  .presets = presets});
}  // namespace

}  // namespace apus::families::xlm_roberta
