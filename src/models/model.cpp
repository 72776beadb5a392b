// SPDX-License-Identifier: Apache-2.0
#include "models/model.h"

#include <ATen/ops/tensor.h>

#include "base/nearest.h"
#include "base/registry.h"
#include "models/config.h"
#include "models/spread_runner.h"
#include "nn/training_step.h"
#include "ops/ops.h"

namespace apus {

at::Tensor Model::positions(const Inputs& in, const Step& s) const {
  std::vector<int64_t> position;
  for (size_t i = 0; i < s.length_q.size(); ++i)
    for (int64_t n = 0; n < s.length_q[i]; ++n) position.push_back((s.begin_q.empty() ? 0 : s.begin_q[i]) + n);
  return at::tensor(position, at::kLong).to(in.id_T.device());
}

at::Tensor Model::trained_head(const Step& s) const {
  const auto& table = training_of(s).table;
  return table && table->defined() ? *table : head_weight();
}

ops::HeadFactors Model::head_factors(const at::Tensor& normed_TD, const Step& s) const {
  return {normed_TD, trained_head(s)};
}

at::Tensor Model::scores(const at::Tensor& normed_TD, const Step& s) const {
  require(head_kind() == Head::Scalar, Fault::Bug, "scores are asked of a model whose head gives logits of words");
  return head(normed_TD, s);
}

void Model::take_scalar_head(int64_t) { fail(Fault::Model, "this kind of model cannot take a scalar head"); }

at::Tensor Model::forward(const Inputs& in, Step& s) const {
  if (devices_) {
    SpreadRunner spread(*devices_);
    return run_layers(*this, in, s, spread);
  }
  LayerRunner here;
  return run_layers(*this, in, s, here);
}

at::Device Model::device_of(const std::string& name) const {
  const auto within = [&](const std::string& module) {
    return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
  };
  for (int64_t i = 0; i < shape().layers; ++i)
    if (within(layer_name(i))) return devices_->layer[static_cast<size_t>(i)];
  return within(norm_name()) ? devices_->norm : within(head_name()) ? devices_->head : devices_->embed;
}

RegisterModel::RegisterModel(const char* model_type, MakeModel make) {
  Registry<MakeModel>::of().add(model_type, make);
}

std::vector<std::string> known_models() {
  std::vector<std::string> names;
  for (const auto& [name, make] : Registry<MakeModel>::of().all()) names.push_back(name);
  return names;
}

namespace {
int64_t labels_of(const Config& config) {
  const Json* names = config.find("id2label");
  const int64_t labels = config.integer("num_labels", names && names->is_object() ? std::ssize(*names) : 1);
  require(labels > 0, Fault::Model, "config.json: num_labels is ", labels, "; a score head has at least one output");
  return labels;
}
}  // namespace

std::unique_ptr<Model> make_model(const Json& config, Head head) {
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
  check_nothing_else(Config(config), /*scores=*/head == Head::Scalar);
  auto model = (*make)(config);
  if (head == Head::Scalar) model->take_scalar_head(labels_of(Config(config)));
  return model;
}

}  // namespace apus
