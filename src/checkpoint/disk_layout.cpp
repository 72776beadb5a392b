// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/disk_layout.h"

#include <functional>
#include <numeric>
#include <utility>

#include "checkpoint/names.h"
#include "nn/parts.h"

namespace apus {

namespace {
int64_t numbers(const Param& p) {
  return std::accumulate(p.full.begin(), p.full.end(), int64_t{1}, std::multiplies<>());
}
}  // namespace

bool has_no_dimensions(const Param& p) { return p.scalar; }

std::vector<DiskShape> disk_shapes(const std::string& name, const Param& p, const DiskForm& form) {
  if (!p.tied.empty()) return {};
  if (p.pieces.empty()) {
    std::vector<int64_t> shape = has_no_dimensions(p) ? std::vector<int64_t>() : p.full;
    if (p.turned || form.is_transposed(name)) std::swap(shape.at(shape.size() - 2), shape.back());
    if (p.flat) shape = {shape[0] * shape[1], shape[2]};
    std::optional<at::ScalarType> type;
    if (p.statistic) type = p.counts ? at::kLong : at::kFloat;
    return {{form.disk_name(name), shape, type}};
  }
  const auto pieces = static_cast<int64_t>(p.pieces.size());
  std::vector<DiskShape> shapes;  // [E, 2, F, D] in 2E pieces: [F, D]
  for (const auto& piece : p.pieces)
    shapes.push_back(
        {form.disk_name(module_of(name) + "." + piece), {numbers(p) / pieces / p.full.back(), p.full.back()}});
  return shapes;
}

std::vector<DiskShape> disk_shapes(Module& model, const DiskForm& form) {
  std::vector<DiskShape> all;
  model.visit([&](const std::string& name, Param& p) {
    for (DiskShape& shape : disk_shapes(name, p, form)) all.push_back(std::move(shape));
  });
  return all;
}

void each_disk_tensor(const std::string& name, const Param& p, const at::Tensor& whole,
                      const std::function<void(const DiskTensor&)>& f, const DiskForm& form) {
  const auto shapes = disk_shapes(name, p, form);
  if (shapes.empty()) return;
  if (has_no_dimensions(p)) return f({shapes[0].name, whole.reshape({})});
  if (p.pieces.empty()) {
    const at::Tensor sides = p.turned || form.is_transposed(name) ? whole.transpose(-2, -1).contiguous() : whole;
    return f({shapes[0].name, p.flat ? sides.flatten(0, 1) : sides});
  }
  const at::Tensor rows = whole.view({static_cast<int64_t>(shapes.size()), shapes[0].shape[0], shapes[0].shape[1]});
  for (size_t i = 0; i < shapes.size(); ++i) f({shapes[i].name, rows[static_cast<int64_t>(i)]});
}

void each_disk_tensor(Module& model, const std::function<void(const DiskTensor&)>& f, const DiskForm& form) {
  model.visit([&](const std::string& name, Param& p) {
    if (p.tied.empty()) each_disk_tensor(name, p, gathered(p, model.mesh()), f, form);
  });
}

}  // namespace apus
