// SPDX-License-Identifier: Apache-2.0
#include "models/spread_runner.h"

namespace apus {

const Step& SpreadRunner::step_on(at::Device device, const Step& s) {
  if (device == devices_.embed) return s;
  for (const auto& [where, step] : copies_)
    if (where == device) return step;
  return copies_.emplace_back(device, moved(s, device)).second;
}

at::Tensor SpreadRunner::layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) {
  const at::Device device = devices_.layer[static_cast<size_t>(i)];
  guard_.reset_device(device);
  return model.layer(i, x_TD.to(device), step_on(device, s));
}

at::Tensor SpreadRunner::final_norm(const Model& model, const at::Tensor& x_TD) {
  guard_.reset_device(devices_.norm);
  return model.final_norm(x_TD.to(devices_.norm)).to(devices_.head);
}

}  // namespace apus
