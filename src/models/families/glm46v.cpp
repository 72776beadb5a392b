// SPDX-License-Identifier: Apache-2.0
// GLM-4.6V-Flash: GLM-4.1V with a longer context, under another name.
#include "models/families/glm4v.h"
#include "models/spec/family.h"

namespace apus::families::glm46v {

namespace {
// name           hidden layers heads kv dim ffn vocab positions theta tied
const std::vector<Preset> presets = {
    {"glm-4.6v-flash", 4096, 40, 32, 2, 0, 13696, 151552, 131072, 5e5, false, {}, glm4v_says()},
};

const RegisterFamily glm46v("glm46v", {.title = "GLM-4.6V-Flash",
                                       .architecture = "Glm46VForConditionalGeneration",
                                       .read = read_glm4v,
                                       .presets = presets});
}  // namespace

}  // namespace apus::families::glm46v
