// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3.x (llama3 rope scaling comes with the config), and Mistral, which adds a sliding window on every layer.
#include "models/decoder.h"

namespace apus {

namespace {
std::unique_ptr<Model> make_llama(const Json& json) {
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.positions = 2048, .mlp_bias = true});
  spec.qkv_bias = spec.out_bias = c.flag("attention_bias", false);
  return std::make_unique<Decoder>(std::move(spec));
}

std::unique_ptr<Model> make_mistral(const Json& json) {
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 8, .positions = 131072});
  spec.window = read_windows(c, spec.shape.layers, Slides::Always);
  return std::make_unique<Decoder>(std::move(spec));
}

const RegisterModel llama("llama", make_llama);
const RegisterModel mistral("mistral", make_mistral);
}  // namespace

}  // namespace apus
