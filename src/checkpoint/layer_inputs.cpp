// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/layer_inputs.h"

namespace apus {

namespace {
const std::string kWatcher = "calibration";

class Watcher final : public Delta {
 public:
  Watcher(NamedLinear layer, LayerInputs::Seen seen) : layer_(std::move(layer)), seen_(std::move(seen)) {}
  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor&, const Step&,
                   Memo*) const override {
    seen_(layer_, x_TI);
    return y_TO;
  }
  at::Tensor merged(const at::Tensor& weight) const override { return weight; }
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor&, const Step&) const override {
    fail(Fault::Bug, layer_.name, ": a head's inputs are not watched");
  }

 private:
  const NamedLinear layer_;
  const LayerInputs::Seen seen_;
};
}  // namespace

LayerInputs::LayerInputs(std::vector<NamedLinear> layers, Seen seen) : layers_(std::move(layers)) {
  for (const NamedLinear& one : layers_) one.layer->attach(kWatcher, std::make_unique<Watcher>(one, seen));
}

LayerInputs::~LayerInputs() {
  for (const NamedLinear& one : layers_) one.layer->detach(kWatcher);
}

}  // namespace apus
