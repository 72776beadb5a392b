// SPDX-License-Identifier: Apache-2.0
// Qwen3.5-MoE's text part alone: every layer has experts and a shared one.
#include "models/spec/family.h"
#include "models/spec/read_qwen3_next.h"

namespace apus {

namespace {
const RegisterFamily qwen3_5_moe_text("qwen3_5_moe_text", {.title = "Qwen3.5-MoE, text part",
                                                           .architecture = "Qwen3_5MoeForCausalLM",
                                                           .read = read_qwen3_5_moe,
                                                           .says = qwen3_5_says()});
}  // namespace

}  // namespace apus
