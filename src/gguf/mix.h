// SPDX-License-Identifier: Apache-2.0
// Which tensor of a model gets which number format, as llama-quantize chooses.
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
  // Which tensors get more than the base; Experts: matrices of experts get MXFP4.
  enum class Kind { Plain, Small, Medium, Experts } kind = Kind::Plain;
  std::string label() const;       // as file names say it: "Q4_K_M"
  bool weighs_importance() const;  // its format asks how much the error of a number matters
};

const GgufMix* find_mix(const std::string& name);  // in capitals or not; null: there is none
std::vector<std::string> mix_names();

struct GgufModelFacts {
  std::string architecture;
  int64_t layers = 0, heads = 0, kv_heads = 0, experts = 0;
  bool tied = false;
  bool importance = false;  // is known: fewer matrices need a larger format
};

// The formats of all tensors. They must be in the order that tensors have in a file: it counts which come first.
// Gives back how many matrices took a larger format than was meant, as their rows are no whole blocks of that one.
int64_t choose_types(std::vector<GgufPlan::Tensor>& tensors, const GgufMix& mix, const GgufModelFacts& model);

// The order of tensors in a file: those of no layer, then layer by layer; by name.
bool comes_before(const std::string& a, const std::string& b);

}  // namespace apus
