// SPDX-License-Identifier: Apache-2.0
// What GGUF files call tensors, and what HuggingFace's checkpoints do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gguf/form.h"

namespace apus {

// Where a tensor of a checkpoint stands in a file, or the other way round: the name there, and how the one is made of
// the other.
struct GgufPlace {
  std::string name;     // of a stack's experts in a checkpoint, with * for the number
  int64_t expert = -1;  // what stood for *; -1: nothing did
  GgufTurn turn = {};
};

// "blk.0.ffn_gate_exps.weight" -> "model.layers.0.mlp.experts.*.gate_proj.weight"; none: it is not known.
std::optional<GgufPlace> place_in_checkpoint(const std::string& gguf, const GgufForm& form);
// Several where the file has its rows in several tensors; empty: it is not known.
std::vector<GgufPlace> places_in_file(const std::string& hf, const GgufForm& form);

inline constexpr const char* kRopeFrequencies = "rope_freqs.weight";  // of Llama 3: what each period is multiplied by
// Of longrope: the same for texts up to the context before scaling, and for longer ones.
inline constexpr const char *kShortFactors = "rope_factors_short.weight", *kLongFactors = "rope_factors_long.weight";

}  // namespace apus
