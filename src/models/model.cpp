// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include <c10/core/DeviceGuard.h>

#include <deque>

#include "base/nearest.h"
#include "base/registry.h"
#include "models/config.h"
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

RegisterModel::RegisterModel(const char* model_type, MakeModel make) {
  Registry<MakeModel>::of().add(model_type, make);
}

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const auto& [name, make] : Registry<MakeModel>::of().all()) names.push_back(name);
  return names;
}

std::unique_ptr<Model> make_model(const Json& config) {
  require(config.is_object(), Fault::Model, "config.json must hold an object");
  const auto type = config.find("model_type");
  require(type != config.end() && type->is_string(), Fault::Model,
          "config.json: 'model_type' is missing; known: ", join(known_models()));
  const auto name = type->get<std::string>();
  const auto* make = Registry<MakeModel>::of().find(name);
  const auto near = nearest(name, known_models());
  require(make, Fault::Model, "config.json: model_type '", name, "' is not known",
          near.empty() ? "" : "; nearest: " + join(near), "; known: ", join(known_models()));
  if (const auto packed = config.find("quantization_config"); packed != config.end() && packed->is_object())
    fail(Fault::Model, "config.json: the checkpoint is quantised (", Config(*packed).text("quant_method", "?"),
         "), which is not read; take the unquantised checkpoint, or write one with the tool that quantised it");
  check_nothing_else(Config(config));
  return (*make)(config);
}

}  // namespace apus
