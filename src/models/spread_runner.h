// SPDX-License-Identifier: Apache-2.0
// A model whose parts lie on several devices: the tokens move along with the layers.
#pragma once

#include <c10/core/DeviceGuard.h>

#include <deque>
#include <utility>

#include "models/layer_runner.h"
#include "models/model.h"

namespace apus {

class SpreadRunner final : public LayerRunner {
 public:
  explicit SpreadRunner(const PartDevices& devices) : devices_(devices), guard_(devices.embed) {}
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override;
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override;

 private:
  const Step& step_on(at::Device device, const Step& s);
  const PartDevices& devices_;
  // For operators that ask which device is current.
  c10::DeviceGuard guard_;
  // The step on every other device that the layers come to: brought there once for all of its layers.
  std::deque<std::pair<at::Device, Step>> copies_;
};

}  // namespace apus
