// SPDX-License-Identifier: Apache-2.0
// What GGUF files call architectures and tensors, and what HuggingFace's do.
#pragma once

#include <cstdint>
#include <string>

namespace apus {

struct GgufFamily {
  const char* architecture;  // of GGUF: "qwen3moe"
  const char* model_type;    // of config.json: "qwen3_moe"
  const char* class_name;    // "Qwen3MoeForCausalLM"
  // The rows of q and k that turn together are neighbours in the file, and half a head apart in config.json's model.
  bool neighbours = false;
  bool experts = false;
  bool normalised_experts = false;  // norm_topk_prob, which files do not say
};

// Fault::Model for others, naming those that are known. `where` is the file.
const GgufFamily& family_of_architecture(const std::string& architecture, const std::string& where);
const GgufFamily& family_of_model_type(const std::string& model_type, const std::string& where);

// "blk.0.ffn_gate_exps.weight" -> "model.layers.0.mlp.experts.*.gate_proj.weight", where * is an expert's number; empty
// for what is not known.
std::string hf_name(const std::string& gguf);
// The other way round; `expert` is what stood for * (-1: nothing did).
struct GgufPlace {
  std::string name;
  int64_t expert = -1;
};
GgufPlace gguf_name(const std::string& hf);

inline constexpr const char* kRopeFrequencies = "rope_freqs.weight";  // of Llama 3: what each period is multiplied by

}  // namespace apus
