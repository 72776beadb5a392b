// SPDX-License-Identifier: Apache-2.0
// A decoder layer in calibration, and what goes into it.
#pragma once

#include <memory>

#include "base/registry.h"
#include "checkpoint/calibrate.h"
#include "checkpoint/layer_inputs.h"
#include "quant/matrix.h"

namespace apus {

struct LayerBatch {
  at::Tensor id_T, x_TD;  // f32
  std::shared_ptr<const Step> step;
};

struct LayerAtHand {
  const Model& model;
  Module& module;
  int64_t index;
  std::string name;
  const std::vector<LayerBatch>& batches;
  std::vector<std::vector<NamedLinear>> groups;  // of one input each, in the order in which they run
};

at::Tensor numbers_of_matrix(const quant::Matrix& matrix);  // f32

// How the error of a decoder layer is made good in a format that is made with rows, by its --quant_method. The layer's
// weights become those that are written.
using LayerQuantiser = void (*)(LayerAtHand& layer, const CalibrationSpec& spec, CalibratedLayer& made);

struct RegisterLayerQuantiser {
  RegisterLayerQuantiser(const char* method, LayerQuantiser quantise) {
    Registry<LayerQuantiser>::of().add(method, quantise);
  }
};

}  // namespace apus
