// SPDX-License-Identifier: Apache-2.0
// BERT: its labels are read off the first token through the pooler.
#include "models/spec/family.h"
#include "models/spec/read_encoder.h"

namespace apus::families::bert {

namespace {
DecoderSpec read(const Config& c) {
  DecoderSpec spec = read_bert(c, "bert", {});
  spec.encoder->tells_apart = spec.encoder->types > 1;
  spec.encoder->head.dense = "bert.pooler.dense";
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"bert-base", 768, 12, 12, 12, 0, 3072, 30522, 512, 1e4, true},
    {"bert-large", 1024, 24, 16, 16, 0, 4096, 30522, 512, 1e4, true},
    {"minilm-l6", 384, 6, 12, 12, 0, 1536, 30522, 512, 1e4, true},
};

const RegisterFamily bert("bert", {.title = "BERT",
                                   .architecture = "BertModel",
                                   .read = read,
                                   .encoder = true,
                                   .says = {{"hidden_act", "gelu"}},
                                   .presets = presets});
}  // namespace

}  // namespace apus::families::bert
