// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include "base/nearest.h"
#include "base/registry.h"

namespace apus {

at::Tensor Model::forward(const at::Tensor& id_T, Step& s) const {
  begin(s);
  at::Tensor x_TD = embed(id_T, s);
  for (int64_t i = 0; i < shape().layers; ++i) x_TD = layer(i, x_TD, s);
  return final_norm(x_TD);
}

RegisterModel::RegisterModel(const char* model_type, MakeModel make) { Registry<MakeModel>::of().add(model_type, make); }

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const auto& [name, make] : Registry<MakeModel>::of().all()) names.push_back(name);
  return names;
}

std::unique_ptr<Model> make_model(const Json& config) {
  require(config.is_object(), Fault::Model, "config.json must hold an object");
  const auto type = config.find("model_type");
  require(type != config.end() && type->is_string(), Fault::Model, "config.json: 'model_type' is missing; known: ", join(known_models()));
  const auto name = type->get<std::string>();
  const auto* make = Registry<MakeModel>::of().find(name);
  const auto near = nearest(name, known_models());
  require(make, Fault::Model, "config.json: model_type '", name, "' is not known", near.empty() ? "" : "; nearest: " + join(near),
          "; known: ", join(known_models()));
  return (*make)(config);
}

}  // namespace apus
