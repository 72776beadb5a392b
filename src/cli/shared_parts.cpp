// SPDX-License-Identifier: Apache-2.0
#include "cli/shared_parts.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace apus {

namespace {
// Of those whose attention is by heads, in matrices of their own. Each was held against one process.
const std::set<std::string> kCutMatrices = {
    "cohere2",          "ernie4_5",       "ernie4_5_moe", "exaone4",   "gemma2",  "gemma3_text", "glm4_moe",  "granite",
    "hunyuan_v1_dense", "hunyuan_v1_moe", "llama",        "mistral",   "mixtral", "qwen2",       "qwen2_moe", "qwen3",
    "qwen3_moe",        "seed_oss",       "smollm3",      "starcoder2"};

std::string known(const std::set<std::string>& families) {
  return join(std::vector<std::string>(families.begin(), families.end()));
}
}  // namespace

std::string why_not(const ModelParts& parts, const ModelFacts& facts, const std::string& model) {
  if (parts.tensor > 1 && kCutMatrices.count(facts.type) == 0)
    return str("--tensor_model_parallel_size is not available for ", facts.type, " models, only for ",
               known(kCutMatrices), ": --deepspeed zero3 and --sequence_parallel_size make room in other ways");
  if (parts.tensor > 1 && parts.row_sharers > facts.heads)
    return str("--tensor_model_parallel_size ", parts.tensor,
               ": these processes share out the heads of attention, and ", model, " has ", facts.heads,
               ": give that many at most");
  if (parts.experts > 1 && facts.experts == 0)
    return str("--expert_model_parallel_size ", parts.experts, ": ", model,
               " has no experts: leave it out; --deepspeed zero3 shares out all weights");
  if (parts.experts > 1 && facts.seeing)
    return "--expert_model_parallel_size is not available for models that see or hear: --deepspeed zero3 makes room in "
           "another way";
  if (parts.experts > facts.experts && parts.experts > 1)
    return str("--expert_model_parallel_size ", parts.experts, ": the layers of ", model, " have ", facts.experts,
               " experts: give that many at most");
  // All decoders of text hand on hidden states alone. A tower's features go to layers behind the first.
  if (parts.stages > 1 && facts.seeing)
    return str("--pipeline_model_parallel_size is not available for ", facts.type,
               " models, which see or hear: --deepspeed zero3 makes room in another way");
  if (parts.stages > 1 && facts.experts > 0 && parts.dora)
    return "--use_dora on mixtures of experts is not available with --pipeline_model_parallel_size: leave it out";
  return "";
}

}  // namespace apus
