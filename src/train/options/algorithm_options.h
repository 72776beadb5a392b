// SPDX-License-Identifier: Apache-2.0
// What the command line knows of a training algorithm: its name, how --help presents it, and its own options. No tensor
// library: the algorithm itself is registered under the same name (train/algorithm.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "base/registry.h"

namespace apus {

// The options of one algorithm, whatever struct they are: it describes itself with fields(OptionTable&).
class AlgorithmOptions {
 public:
  template <class Options>
  static AlgorithmOptions of(Options values = {}) {
    AlgorithmOptions out;
    const auto held = std::make_shared<Options>(std::move(values));
    out.values_ = held, out.type_ = &typeid(Options);
    out.fields_ = [held](OptionTable& v) { held->fields(v); };
    return out;
  }
  void fields(OptionTable& v) const { fields_(v); }
  template <class Options>
  const Options& as() const {
    require(*type_ == typeid(Options), Fault::Bug, "an algorithm is given the options of another");
    return *static_cast<const Options*>(values_.get());
  }

 private:
  std::shared_ptr<void> values_;
  const std::type_info* type_ = nullptr;
  std::function<void(OptionTable&)> fields_;
};

// `apus <name>` trains by it.
struct AlgorithmInfo {
  std::string summary;
  std::vector<std::string> examples;  // without the program's name
  Json defaults = Json::object();     // options of the command that have another default here
  bool splits_rows = false;           // --truncation_strategy split makes sense: rows are plain text
  std::function<AlgorithmOptions()> options = {};
};

template <class Options>
struct RegisterAlgorithmOptions {
  RegisterAlgorithmOptions(const std::string& name, AlgorithmInfo info) {
    info.options = [] { return AlgorithmOptions::of<Options>(); };
    Registry<AlgorithmInfo>::of().add(name, std::move(info));
  }
};

inline const AlgorithmInfo& algorithm_info(const std::string& name) {
  const AlgorithmInfo* info = Registry<AlgorithmInfo>::of().find(name);
  require(info, Fault::Bug, "no training algorithm is named '", name, "'");
  return *info;
}

}  // namespace apus
