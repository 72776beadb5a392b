// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: biases on q, k, v; from layer max_window_layers on a sliding window when the config asks for one.
#include "models/decoder.h"

namespace apus {

namespace {
std::unique_ptr<Model> make_qwen2(const Json& json) {
  const Config c(json);
  DecoderSpec spec = read_decoder(c, {.kv_heads = 32});
  spec.qkv_bias = true;
  spec.window = read_windows(c, spec.shape.layers, if_asked(c, Slides::Above));
  return std::make_unique<Decoder>(std::move(spec));
}
const RegisterModel qwen2("qwen2", make_qwen2);
}  // namespace

}  // namespace apus
