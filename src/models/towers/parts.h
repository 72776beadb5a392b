// SPDX-License-Identifier: Apache-2.0
// The modules of a tower, made from the list of its parts (models/spec/seeing_spec.h), and found by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/spec/seeing_spec.h"
#include "nn/linear.h"
#include "nn/norm.h"

namespace apus {

// Numbers that no adapter changes.
class Table : public Module {
 public:
  explicit Table(const TowerPart& part);
  const at::Tensor& weight() const { return weight_.data; }
  at::Tensor bias() const { return bias_ ? bias_->data : at::Tensor(); }  // undefined: it has none

 private:
  Param& weight_;
  Param* bias_ = nullptr;
};

class TowerParts : public Module {
 public:
  explicit TowerParts(const std::vector<TowerPart>& parts);
  const Linear& linear(const std::string& name) const { return *linears_.at(name); }
  const Norm& norm(const std::string& name) const { return *norms_.at(name); }
  const Table& table(const std::string& name) const { return *tables_.at(name); }
  const Param& bare(const std::string& name) const { return *bare_.at(name); }

 private:
  std::map<std::string, Linear*> linears_;
  std::map<std::string, Norm*> norms_;
  std::map<std::string, Table*> tables_;
  std::map<std::string, Param*> bare_;
};

}  // namespace apus
