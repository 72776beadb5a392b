// SPDX-License-Identifier: Apache-2.0
// What weights and the optimizer's state of them take, without any run.
#include "plan/train_memory.h"
#include "train/options/optimizer_info.h"

namespace apus {

double weight_bytes(const TuningFacts& t, const TrainSpec& s) {
  const double held = s.held_bits > 0 ? t.linear : 0;
  return (t.elements - held) * s.element + held * s.held_bits / 8;
}

double optimizer_state_bytes(const TuningFacts& t, const TrainSpec& s) {
  const OptimizerFacts& o = s.optimizer;
  const OptimizerInfo& info = optimizer_info(o.kind);
  const double momentum = o.momentum ? info.with_momentum : 0;
  const double of_others = info.of_others + momentum, of_matrices = info.of_matrices + momentum;
  const double master = o.master && s.element < 4 ? 4 : 0,
               adapter_master = o.master && t.spec.adapter_bytes < 4 ? 4 : 0;
  double shaped = 0, by_shape = 0;  // elements that are counted by their shape, and their bytes
  if (info.of_shape)
    for (const auto& [shape, count] : t.trained_shapes) {
      const auto n = static_cast<double>(count);
      shaped += n * static_cast<double>(shape.first) * static_cast<double>(shape.second);
      by_shape += n * info.of_shape(shape.first, shape.second, o.arguments);
    }
  return (t.trained - t.trained_matrices) * of_others + (t.trained_matrices - shaped) * of_matrices + by_shape +
         t.adapter * of_matrices + t.trained * master + t.adapter * adapter_master;
}

}  // namespace apus
