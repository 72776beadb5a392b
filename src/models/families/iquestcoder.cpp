// SPDX-License-Identifier: Apache-2.0
// IQuest-Coder: Llama.
#include "base/error.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::iquestcoder {

namespace {
DecoderSpec read(const Config& c) {
  const int64_t head_dim = c.json().contains("head_dim") ? 0 : 128;  // null: hidden / heads
  const int64_t kv_heads = c.json().contains("num_key_value_heads") ? 0 : 8;
  DecoderSpec spec =
      read_decoder(c, {.kv_heads = kv_heads, .positions = 131072, .head_dim = head_dim, .mlp_bias = true, .eps = 1e-5});
  spec.attention.qkv_bias = spec.attention.out_bias = c.flag("attention_bias", false);
  require(!c.find("clip_qkv") && !c.flag("use_sliding_window", false), Fault::Model,
          "config.json: clip_qkv and use_sliding_window are not known in this family");
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"iquest-coder-40b", 5120, 80, 40, 8, 128, 27648, 76800, 131072, 5e5, false},
};

const RegisterFamily iquestcoder("iquestcoder", {.title = "IQuest-Coder",
                                                 .architecture = "LlamaForCausalLM",
                                                 .read = read,
                                                 .says = {{"rms_norm_eps", 1e-5}},
                                                 .presets = presets});
}  // namespace

}  // namespace apus::families::iquestcoder
