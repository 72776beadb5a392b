// SPDX-License-Identifier: Apache-2.0
// Intern-S1: InternVL in transformers' layout under another name, with Qwen3's text models.
#include "models/spec/family.h"
#include "models/spec/read_internvl.h"

namespace apus::families::interns1 {

namespace {
const std::vector<Preset> presets = {
    {"intern-s1-mini",
     4096,
     36,
     32,
     8,
     128,
     12288,
     153216,
     65536,
     1e6,
     false,
     {},
     {{"text_config", {{"model_type", "qwen3"}, {"architectures", {"Qwen3ForCausalLM"}}}}}},
};
const RegisterFamily interns1("interns1", {.title = "Intern-S1",
                                           .architecture = "InternS1ForConditionalGeneration",
                                           .read = read_native_internvl,
                                           .says = intern_says(),
                                           .presets = presets});
}  // namespace

}  // namespace apus::families::interns1
