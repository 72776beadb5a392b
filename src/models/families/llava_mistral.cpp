// SPDX-License-Identifier: Apache-2.0
// Llava 1.6 over Mistral in its authors' own files.
#include "models/families/llava_llama.h"
#include "models/spec/family.h"

namespace apus::families::llava_mistral {

namespace {
DecoderSpec read_over_mistral(const Config& c) { return read_own_llava(c, "mistral"); }

// name        hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> over_mistral = {
    {"llava-v1.6-mistral-7b-own",
     4096,
     32,
     32,
     8,
     128,
     14336,
     32000,
     32768,
     1e6,
     false,
     {},
     {{"rms_norm_eps", 1e-5}, {"sliding_window", nullptr}}},
};
const RegisterFamily llava_mistral("llava_mistral", {.title = "Llava 1.6 over Mistral, its authors' layout",
                                                     .architecture = "LlavaMistralForCausalLM",
                                                     .read = read_over_mistral,
                                                     .says = own_llava_says(),
                                                     .presets = over_mistral});
}  // namespace

}  // namespace apus::families::llava_mistral
