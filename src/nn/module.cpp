// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <algorithm>

namespace apus {

namespace {
std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}
}  // namespace

void Module::visit(const Visit& f, const std::string& prefix) {
  for (auto& [name, param] : params_) f(joined(prefix, name), *param);
  for (auto& [name, module] : children_) module->visit(f, joined(prefix, name));
}

void Module::visit_modules(const VisitModule& f, const std::string& prefix) {
  f(prefix, *this);
  for (auto& [name, module] : children_) module->visit_modules(f, joined(prefix, name));
}

Param& Module::param(std::string name, std::vector<int64_t> full, std::vector<Cut> cuts) {
  auto made = std::make_unique<Param>();
  made->full = std::move(full);
  made->cuts = std::move(cuts);
  return *params_.emplace_back(std::move(name), std::move(made)).second;
}

void Module::drop_child(const std::string& name) {
  std::erase_if(children_, [&](const auto& child) { return child.first == name; });
}

}  // namespace apus
