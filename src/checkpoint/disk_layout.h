// SPDX-License-Identifier: Apache-2.0
// What a model's parameters are on disk: a stack of experts is a tensor for each of its pieces, tied parameters are not
// there, and what ranks share out is whole.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/spec/disk_form.h"
#include "nn/module.h"

namespace apus {

struct DiskShape {
  std::string name;
  std::vector<int64_t> shape;
  // Its own, whatever the weights have: of a statistic.
  std::optional<at::ScalarType> type = {};
};
// On disk: of a statistic that is a single number.
bool has_no_dimensions(const Param& param);
// Of one parameter, and of all of a model in visiting order. Nothing need be loaded.
std::vector<DiskShape> disk_shapes(const std::string& name, const Param& param, const DiskForm& form = {});
std::vector<DiskShape> disk_shapes(Module& model, const DiskForm& form = {});

// The tensors themselves in the same order. Where ranks share out parameters, all of them call this together, and
// memory holds the whole of one parameter at a time.
struct DiskTensor {
  std::string name;
  at::Tensor data;
};
void each_disk_tensor(Module& model, const std::function<void(const DiskTensor&)>& f, const DiskForm& form = {});
// Of one parameter, whose whole values `whole` are.
void each_disk_tensor(const std::string& name, const Param& param, const at::Tensor& whole,
                      const std::function<void(const DiskTensor&)>& f, const DiskForm& form = {});

}  // namespace apus
