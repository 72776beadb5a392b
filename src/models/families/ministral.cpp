// SPDX-License-Identifier: Apache-2.0
// Ministral 8B: Mistral in which some layers slide and others see everything.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::ministral {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t kv_heads = c.json().contains("num_key_value_heads") ? 0 : 8;  // null: as many as heads
  DecoderSpec spec = read_decoder(c, {.kv_heads = kv_heads, .positions = 131072});
  spec.window = read_windows(c, spec.shape.layers, [](int64_t) { return true; });
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"ministral-8b", 4096, 36, 32, 8, 128, 12288, 131072, 32768, 1e8, false, {}, {{"sliding_window", nullptr}}},
};

const RegisterFamily ministral("ministral", {.title = "Ministral 8B",
                                             .architecture = "MinistralForCausalLM",
                                             .read = read,
                                             .says = {{"rms_norm_eps", 1e-5}},
                                             .presets = presets});
}  // namespace

}  // namespace apus::families::ministral
