// SPDX-License-Identifier: Apache-2.0
// What GGUF files call architectures and tensors, and what HuggingFace's do.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace apus {

// What stands for one another behind the layer's number: "mlp.gate_up_proj" and "ffn_up".
struct GgufPair {
  std::string_view hf, gguf;
};

// A number that config.json and the file say under these names, the file's behind "ARCHITECTURE.".
struct GgufKey {
  const char *config, *file;
  bool whole;  // an integer
};

struct GgufSizes {
  int64_t layers, hidden, heads, head_dim;
};

struct GgufFamily {
  const char* architecture;              // of GGUF: "qwen3moe"
  const char* model_type;                // of config.json: "qwen3_moe"
  const char* class_name;                // "Qwen3MoeForCausalLM"
  std::span<const GgufPair> names = {};  // those that differ from most families'
  std::span<const GgufKey> keys = {};
  GgufKey eps = {"rms_norm_eps", "attention.layer_norm_rms_epsilon", false};  // what norms add to the variance
  // Settings of config.json that files do not say, as llama.cpp takes them to be.
  Json (*constants)(const GgufSizes& sizes) = nullptr;
  bool two_factor_sets = false;  // longrope's: tensors of factors for short and for long texts
  bool turns_in_part = false;    // rope.dimension_count may be smaller than a head
  int shift = 0;                 // the weights of norms are larger in the file by this
  // The rows of q and k that turn together are neighbours in the file, and half a head apart in config.json's model.
  bool neighbours = false;
  bool experts = false;
  bool normalised_experts = false;  // norm_topk_prob, which files do not say
  const char* experts_per_token = "num_experts_per_tok";
};

// Fault::Model for others, naming those that are known. `where` is the file.
const GgufFamily& family_of_architecture(const std::string& architecture, const std::string& where);
const GgufFamily& family_of_model_type(const std::string& model_type, const std::string& where);

// "blk.0.ffn_gate_exps.weight" -> "model.layers.0.mlp.experts.*.gate_proj.weight", where * is an expert's number; empty
// for what is not known.
std::string hf_name(const std::string& gguf, const GgufFamily& family);
// The other way round; `expert` is what stood for * (-1: nothing did).
struct GgufPlace {
  std::string name;
  int64_t expert = -1;
};
GgufPlace gguf_name(const std::string& hf, const GgufFamily& family);
// By what the file has this tensor's numbers larger: family.shift in norms, else 0.
int shift_of(const std::string& gguf, const GgufFamily& family);

inline constexpr const char* kRopeFrequencies = "rope_freqs.weight";  // of Llama 3: what each period is multiplied by
// Of longrope: the same for texts up to the context before scaling, and for longer ones.
inline constexpr const char *kShortFactors = "rope_factors_short.weight", *kLongFactors = "rope_factors_long.weight";

}  // namespace apus
