// SPDX-License-Identifier: Apache-2.0
// Youtu-LLM: latent attention as DeepSeek-V3 has it, with dense feed-forwards.
#include "gguf/words.h"
#include "models/spec/family.h"
#include "models/spec/read_decoder.h"

namespace apus::families::youtu {

namespace {
DecoderSpec read(const Config& c) {
  Json all = c.json();
  all["head_dim"] = latent_turned(c), all["num_key_value_heads"] = c.integer("num_attention_heads");
  const Config full(all);
  DecoderSpec spec = read_decoder(full, {.positions = 131072, .tied = true});
  use_latent_attention(full, spec, c.flag("rope_interleave", true));
  return spec;
}

// name hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"youtu-llm-2b", 2048, 32, 16, 16, 0, 6144, 128256, 131072, 1.6e6, true},
};

// How it stands in GGUF files.
// llama.cpp wants to be told of the experts that it lacks.
void write_gguf(const Json& config, GgufSettingsWriter& out) {
  out.whole("leading_dense_block_count", config.value("num_hidden_layers", int64_t{0}));
  out.whole("expert_feed_forward_length", config.value("intermediate_size", int64_t{0}));
  out.whole("expert_shared_count", 0);
}

const GgufForm gguf = {.architecture = "deepseek2",
                       .claims = [](const GgufSays& file) { return file.integer("expert_count").value_or(0) == 0; },
                       .names = words::latent_names(),
                       .read = words::read_latent,
                       .write = write_gguf};

const RegisterFamily youtu("youtu", {.title = "Youtu-LLM",
                                     .architecture = "YoutuForCausalLM",
                                     .read = read,
                                     .says = {{"q_lora_rank", 1536},
                                              {"kv_lora_rank", 512},
                                              {"qk_nope_head_dim", 128},
                                              {"qk_rope_head_dim", 64},
                                              {"v_head_dim", 128}},
                                     .presets = presets,
                                     .gguf = gguf});
}  // namespace

}  // namespace apus::families::youtu
