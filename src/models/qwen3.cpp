// SPDX-License-Identifier: Apache-2.0
// Qwen3: q and k normalised per head, no biases unless the config says so.
#include "models/decoder.h"

namespace apus {

namespace {
std::unique_ptr<Model> make_qwen3(const Json& json) {
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32, .head_dim = 128});
  spec.qk_norm = true;
  spec.qkv_bias = spec.out_bias = c.flag("attention_bias", false);
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Above));
  return std::make_unique<Decoder>(std::move(spec));
}
const RegisterModel qwen3("qwen3", make_qwen3);
}  // namespace

}  // namespace apus
