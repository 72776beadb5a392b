// SPDX-License-Identifier: Apache-2.0
#include "train/options/optimizer_info.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

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

std::string averaging_flag(const std::string& name) {
  const OptimizerInfo& info = optimizer_info(name);
  return info.averages ? str("--", info.flag, " ", name) : "";
}

std::string watching_flag(const std::string& name) {
  const OptimizerInfo& info = optimizer_info(name);
  return info.watches_logits ? str("--", info.flag, " ", name) : "";
}

OptimizerArguments parse_optim_args(const std::string& text) {
  OptimizerArguments out;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    part.erase(std::remove(part.begin(), part.end(), ' '), part.end());
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    require(equals != std::string::npos && equals > 0, Fault::Usage, "--optim_args: '", part,
            "' is not of the form key=value");
    out[part.substr(0, equals)] = part.substr(equals + 1);
  }
  return out;
}

double optim_number(const OptimizerArguments& arguments, const char* key, double otherwise) {
  const auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : std::strtod(found->second.c_str(), nullptr);
}

}  // namespace apus
