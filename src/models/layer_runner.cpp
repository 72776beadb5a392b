// SPDX-License-Identifier: Apache-2.0
#include "models/layer_runner.h"

#include "models/model.h"

namespace apus {

LayerRange LayerRunner::layers(const Model& model) const { return {0, model.shape().layers}; }
at::Tensor LayerRunner::embed(const Model& model, const Inputs& in, const Step& s) { return model.embed(in, s); }
at::Tensor LayerRunner::layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) {
  return model.layer(i, x_TD, s);
}
at::Tensor LayerRunner::final_norm(const Model& model, const at::Tensor& x_TD) { return model.final_norm(x_TD); }

void prepare_step(const Model& model, const Inputs& in, Step& s, LayerRunner& runner) {
  if (!s.position.defined()) s.position = model.positions(in, s);
  model.look_ahead(in, s);
  runner.prepare(in, s);
  model.begin(s);
}

at::Tensor run_prepared(const Model& model, const Inputs& in, const Step& s, LayerRunner& runner) {
  at::Tensor x_TD = runner.embed(model, in, s);
  const LayerRange range = runner.layers(model);
  for (int64_t i = range.begin; i < range.end; ++i) x_TD = model.behind_layer(i, in, runner.layer(model, i, x_TD, s));
  return runner.final_norm(model, x_TD);
}

at::Tensor run_layers(const Model& model, const Inputs& in, Step& s, LayerRunner& runner) {
  prepare_step(model, in, s, runner);
  return run_prepared(model, in, s, runner);
}

}  // namespace apus
