// SPDX-License-Identifier: Apache-2.0
// The tensors of an adapter's file, each expert's factors for themselves.
//
// PEFT lays factors over the weights of all experts of a layer (target_parameters) as one A [E r, in] and one B
// [out, r E], for gate and up together and for down. Two on one layer lie one in the other: the outer one (down) has
// the layer's name, the inner one (gate and up) that name and "base_layer". Shapes: E experts, r rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/adapter_config.h"
#include "tensor/safetensors.h"

namespace apus {

inline constexpr const char* kAdapterPrefix = "base_model.model.";
inline constexpr const char *kSharedA = "base_model.vera_A", *kSharedB = "base_model.vera_B";

class AdapterFile {
 public:
  AdapterFile(const std::filesystem::path& path, const LoraConfig& config);
  // Those of stacked experts under the names that they have with factors of their own, gate and up with the same A.
  const std::map<std::string, TensorEntry>& entries() const { return entries_; }
  at::Tensor tensor(const std::string& name) const;
  // kind vera: A and B of all layers, if they were saved. They are no entries.
  std::optional<std::pair<at::Tensor, at::Tensor>> shared_matrices() const;
  // What a configuration leaves to the shapes of the tensors: the ranks that AdaLoRA left of each layer, the factors
  // of BOFT where PEFT made fewer than it was asked for (it makes one without its extension for GPUs).
  void complete(LoraConfig& config) const;

 private:
  struct Piece {
    std::string source;
    int64_t expert, experts;
    bool first;              // A
    int64_t begin, outputs;  // rows of B
  };
  void unstack(const std::string& name, const TensorEntry& entry, const LoraConfig& config);
  std::shared_ptr<SafetensorsFile> file_;
  std::map<std::string, TensorEntry> entries_;
  std::map<std::string, Piece> pieces_;
  std::map<std::string, std::string> in_file_;  // -> names in the file, where they are others
};

// What the names of a layer's parameters begin with in a file.
std::string name_in_file(const LoraConfig& config, const std::string& module);

// LN tuning: PEFT names a norm's own parameters as a part of it, which is taken off where a file is read.
void name_norms(std::vector<std::pair<std::string, at::Tensor>>& tensors, const LoraConfig& config);

// The other way round: tensors of single experts, which target_parameters means, become what PEFT writes.
void stack_factors(std::vector<std::pair<std::string, at::Tensor>>& tensors, const LoraConfig& config);

}  // namespace apus
