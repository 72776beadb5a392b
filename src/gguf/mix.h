// SPDX-License-Identifier: Apache-2.0
// Which tensor of a model gets which number format, as llama-quantize chooses without importance matrix.
// No tensor library.
#pragma once

#include <string>
#include <vector>

#include "gguf/gguf_file.h"

namespace apus {

struct GgufMix {
  const char* name;  // as --to_gguf says it: "q4_k_m"
  int file_type;     // general.file_type
  GgmlType base;
  enum class Kind { Plain, Small, Medium } kind = Kind::Plain;  // which tensors get more than the base
  std::string label() const;                                    // as file names say it: "Q4_K_M"
};

const GgufMix* find_mix(const std::string& name);  // in capitals or not; null: there is none
std::vector<std::string> mix_names();

struct GgufModelFacts {
  std::string architecture;
  int64_t layers = 0, heads = 0, kv_heads = 0, experts = 0;
  bool tied = false;
};

// The formats of all tensors. They must be in the order that tensors have in a file: it counts which come first.
// Gives back how many matrices took a larger format than was meant, as their rows are no whole blocks of that one.
int64_t choose_types(std::vector<GgufPlan::Tensor>& tensors, const GgufMix& mix, const GgufModelFacts& model);

// The order of tensors in a file: those of no layer, then layer by layer; by name.
bool comes_before(const std::string& a, const std::string& b);

}  // namespace apus
