// SPDX-License-Identifier: Apache-2.0
// Qwen3.5's text part alone: Qwen3-Next with dense layers, its delta nets' inputs made by matrices of their own.
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus {

namespace {
const RegisterFamily qwen3_5_text("qwen3_5_text", {.title = "Qwen3.5, text part",
                                                   .architecture = "Qwen3_5ForCausalLM",
                                                   .read = read_qwen3_5,
                                                   .says = qwen3_5_says()});
}  // namespace

}  // namespace apus
