// SPDX-License-Identifier: Apache-2.0
// InternLM 1, by the code that its files bring: Llama with biases on all four matrices of attention.
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::internlm {

namespace {
DecoderSpec read(const Config& c) {
  Json all = c.json();
  // Beyond the length it was trained with, the original makes angles smaller as a text grows, which is not done here.
  if (const Json* rotary = c.find("rotary"); rotary && rotary->is_object())
    all["rope_theta"] = rotary->value("base", 1e4);
  DecoderSpec spec = read_decoder(Config(all), {.positions = 2048});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("bias", true);
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"internlm-7b", 4096, 32, 32, 32, 0, 11008, 103168, 2048, 1e4, false},
    {"internlm-20b", 5120, 60, 40, 40, 0, 13824, 103168, 4096, 1e4, false},
};

const RegisterFamily internlm("internlm", {.title = "InternLM 1",
                                           .architecture = "InternLMForCausalLM",
                                           .read = read,
                                           .says = {{"bias", true}},
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::internlm
