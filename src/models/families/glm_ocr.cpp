// SPDX-License-Identifier: Apache-2.0
// GLM-OCR: a small GLM-4 without biases, and a tower whose queries and keys are normalised.
#include "models/families/glm4v.h"
#include "models/spec/family.h"

namespace apus::families::glm_ocr {

namespace {
DecoderSpec read(const Config& c) {
  const Json unsaid = {{"vocab_size", 59392},
                       {"hidden_size", 1024},
                       {"intermediate_size", 4096},
                       {"num_hidden_layers", 16},
                       {"num_attention_heads", 16},
                       {"num_key_value_heads", 8},
                       {"max_position_embeddings", 131072},
                       {"partial_rotary_factor", 1.0}};
  return with_glm_ocr_tower(c, read_glm_text(c, "glm4", unsaid, {{"attention_bias", false}}));
}

Json says() {
  return glm_sight_says(59256, 59280,
                        {{"model_type", "glm_ocr_text"},
                         {"partial_rotary_factor", 1.0},
                         {"rope_scaling", {{"rope_type", "default"}, {"mrope_section", {16, 24, 24}}}},
                         {"num_nextn_predict_layers", 1}},
                        {{"model_type", "glm_ocr_vision"},
                         {"hidden_size", 1024},
                         {"num_heads", 16},
                         {"intermediate_size", 4096},
                         {"out_hidden_size", 1536},
                         {"attention_bias", true}});
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm-ocr-0.9b", 1536, 16, 16, 8, 128, 4608, 59392, 131072, 1e4, false, {}, says()},
};

const RegisterFamily glm_ocr("glm_ocr", {.title = "GLM-OCR",
                                         .architecture = "GlmOcrForConditionalGeneration",
                                         .read = read,
                                         .presets = presets});
}  // namespace

}  // namespace apus::families::glm_ocr
