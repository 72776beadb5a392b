// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

std::string optimizer_named(const std::string& name) {
  for (const auto& [own, info] : Registry<OptimizerInfo>::of().all())
    if (own == name || std::find(info.names.begin(), info.names.end(), name) != info.names.end()) return own;
  return "";
}

const OptimizerInfo& optimizer_info(const std::string& name) {
  const OptimizerInfo* info = Registry<OptimizerInfo>::of().find(optimizer_named(name));
  require(info, Fault::Bug, "there is no optimizer '", name, "'");
  return *info;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> all;
  for (const auto& [name, info] : Registry<OptimizerInfo>::of().all()) {
    if (info.flag != "optim") continue;
    all.push_back(name);
    all.insert(all.end(), info.names.begin(), info.names.end());
  }
  return all;
}

std::string optimizers_text(const std::string& flag) {
  std::string text;
  for (const auto& [name, info] : Registry<OptimizerInfo>::of().all())
    if (info.flag == flag) text += str(text.empty() ? "" : "; ", name, ": ", info.summary);
  return text;
}

std::string whole_matrices_flag(const std::string& name) {
  const OptimizerInfo& info = optimizer_info(name);
  return info.whole_matrices ? str("--", info.flag, " ", name) : "";
}

}  // namespace apus
