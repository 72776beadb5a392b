// SPDX-License-Identifier: Apache-2.0
#include "nn/module.h"

#include <algorithm>

#include "dist/mesh.h"

namespace apus {

namespace {
std::string dotted(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : name.empty() ? prefix : prefix + "." + name;
}
}  // namespace

std::vector<int64_t> Param::local_shape() const {
  std::vector<int64_t> shape;
  for (const Range& range : part) shape.push_back(range.size);
  return shape;
}

void Module::visit(const Visit& f, const std::string& prefix) {
  for (auto& [name, param] : params_) f(dotted(prefix, name), *param);
  for (auto& [name, module] : children_) module->visit(f, dotted(prefix, name));
}

void Module::visit_modules(const VisitModule& f, const std::string& prefix) {
  f(prefix, *this);
  for (auto& [name, module] : children_) module->visit_modules(f, dotted(prefix, name));
}

void Module::place(MeshView& mesh) {
  visit_modules([&](const std::string&, Module& module) { module.mesh_ = &mesh; });
  visit([&](const std::string& name, Param& p) {
    p.part = local_part(p.full, p.cuts, mesh.layout());
    require(!p.data.defined() || p.data.sizes() == at::IntArrayRef(p.local_shape()), Fault::Bug, name,
            " was loaded before it was placed");
  });
}

Param& Module::param(std::string name, std::vector<int64_t> full, std::vector<Cut> cuts) {
  auto made = std::make_unique<Param>();
  made->full = std::move(full);
  made->cuts = std::move(cuts);
  made->cuts.push_back({Axis::DpShard, 0});
  for (const int64_t size : made->full) made->part.push_back({0, size});
  return *params_.emplace_back(std::move(name), std::move(made)).second;
}

void Module::drop_child(const std::string& name) {
  std::erase_if(children_, [&](const auto& child) { return child.first == name; });
}

}  // namespace apus
