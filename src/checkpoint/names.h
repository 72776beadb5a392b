// SPDX-License-Identifier: Apache-2.0
// Names of tensors in files. No tensor library.
#pragma once

#include <string>

namespace apus {

// Checkpoints of a model's backbone alone leave its name out: "model.norm.weight" is "norm.weight" there. Empty for
// what is no part of the backbone.
inline std::string bare_name(const std::string& name, const std::string& backbone) {
  return name.starts_with(backbone + ".") ? name.substr(backbone.size() + 1) : "";
}

// "model.norm.weight" -> "model.norm"
inline std::string module_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

}  // namespace apus
