// SPDX-License-Identifier: Apache-2.0
#include "models/seeing_rows.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "nn/training_step.h"

namespace apus {

int64_t begin_of(const Step& s, size_t i) { return s.begin_q.empty() ? 0 : s.begin_q[i]; }

at::Tensor indices(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}

std::vector<std::string> adapter_of_rows(const Step& s, int64_t rows) {
  if (!s.routed) return {};
  std::vector<std::string> adapter(static_cast<size_t>(rows));
  for (const auto& group : s.adapters) {
    const at::Tensor host = group.rows.to(at::kCPU).contiguous();
    for (int64_t i = 0; i < host.numel(); ++i) adapter[static_cast<size_t>(host.data_ptr<int64_t>()[i])] = group.name;
  }
  return adapter;
}

Step tower_step(const Step& s, const std::string& adapter, int64_t rows, at::Device device) {
  Step own;
  own.routed = s.routed;
  if (s.training) {
    TrainingStep training;
    training.dropout_seed = s.training->dropout_seed;
    set_training(own, std::move(training));
  }
  if (!adapter.empty()) own.adapters.push_back({adapter, at::arange(rows, at::TensorOptions(device).dtype(at::kLong))});
  return own;
}

}  // namespace apus
