// SPDX-License-Identifier: Apache-2.0
// Layers that are run again in the backward pass (nn/run_again.h), on the one walk over them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "models/layer_runner.h"
#include "nn/memo.h"

namespace apus {

class RecomputeRunner final : public LayerRunner {
 public:
  // Which results of a layer are remembered; nullopt: the layer keeps its activations and does not run again.
  using Remembered = std::function<std::optional<Memo::Kinds>(int64_t layer)>;
  // Both runs of a layer are `inner`'s.
  RecomputeRunner(Remembered remembered, std::shared_ptr<LayerRunner> inner)
      : remembered_(std::move(remembered)), inner_(std::move(inner)) {}

  LayerRange layers(const Model& model) const override { return inner_->layers(model); }
  void prepare(const Inputs& in, Step& s) override { inner_->prepare(in, s); }
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override { return inner_->embed(model, in, s); }
  // The backward pass adds the gradients of the layer's parameters to them directly. The model must outlive it.
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override;
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override { return inner_->final_norm(model, x_TD); }

 private:
  Remembered remembered_;
  std::shared_ptr<LayerRunner> inner_;
};

}  // namespace apus
