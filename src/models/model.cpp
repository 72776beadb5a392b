// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include <c10/core/DeviceGuard.h>

#include <deque>

#include "models/decoder.h"
#include "models/spec/family.h"
#include "ops/ops.h"

namespace apus {

ops::HeadFactors Model::head_factors(const at::Tensor& normed_TD, const Step& s) const {
  return {normed_TD, trained_head(s)};
}

at::Tensor Model::forward(const at::Tensor& id_T, Step& s) const {
  begin(s);
  if (places_) return forward_over_devices(id_T, s);
  at::Tensor x_TD = embed(id_T, s);
  for (int64_t i = 0; i < shape().layers; ++i) x_TD = layer(i, x_TD, s);
  return final_norm(x_TD);
}

namespace {
// The step on every device that the layers come to: brought there once for all of its layers.
class Steps {
 public:
  Steps(const Step& here, at::Device device) : here_(here), device_(device) {}
  const Step& on(at::Device device) {
    if (device == device_) return here_;
    for (const auto& [where, step] : copies_)
      if (where == device) return step;
    return copies_.emplace_back(device, moved(here_, device)).second;
  }

 private:
  const Step& here_;
  const at::Device device_;
  std::deque<std::pair<at::Device, Step>> copies_;
};
}  // namespace

at::Tensor Model::forward_over_devices(const at::Tensor& id_T, Step& s) const {
  Steps steps(s, places_->embed);
  c10::DeviceGuard guard(places_->embed);  // for operators that ask which device is current
  at::Tensor x_TD = embed(id_T, s);
  for (int64_t i = 0; i < shape().layers; ++i) {
    const at::Device device = places_->layer[static_cast<size_t>(i)];
    guard.reset_device(device);
    x_TD = layer(i, x_TD.to(device), steps.on(device));
  }
  guard.reset_device(places_->norm);
  return final_norm(x_TD.to(places_->norm)).to(places_->head);
}

at::Device Model::place_of(const std::string& name) const {
  const auto within = [&](const std::string& module) {
    return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
  };
  for (int64_t i = 0; i < shape().layers; ++i)
    if (within(layer_name(i))) return places_->layer[static_cast<size_t>(i)];
  return within(norm_name()) ? places_->norm : within(head_name()) ? places_->head : places_->embed;
}

std::unique_ptr<Model> make_model(const Json& config) {
  DecoderSpec spec = describe_model(config);
  mention_own_code(Config(config));
  return std::make_unique<Decoder>(std::move(spec));
}

}  // namespace apus
