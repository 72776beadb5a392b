// SPDX-License-Identifier: Apache-2.0
// Llava-NeXT over Qwen 1.5 in its authors' own files.
#include "models/families/llava_llama.h"
#include "models/spec/family.h"

namespace apus::families::llava_qwen {

namespace {
DecoderSpec read_over_qwen2(const Config& c) { return read_own_llava(c, "qwen2"); }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> over_qwen2 = {
    {"llava-next-72b", 8192, 80, 64, 64, 128, 24576, 152064, 32768, 1e6, false, {}, {{"rms_norm_eps", 1e-6}}},
};
const RegisterFamily llava_qwen("llava_qwen", {.title = "Llava-NeXT over Qwen 1.5, its authors' layout",
                                               .architecture = "LlavaQwenForCausalLM",
                                               .read = read_over_qwen2,
                                               .says = own_llava_says(),
                                               .presets = over_qwen2});
}  // namespace

}  // namespace apus::families::llava_qwen
