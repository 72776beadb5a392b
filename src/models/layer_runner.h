// SPDX-License-Identifier: Apache-2.0
// The one walk through a model, and who may act on the way: a runner runs each of its parts, and may bring something
// there before it, take something away behind it, run it in another way, or leave it to another process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "nn/inputs.h"
#include "nn/step.h"

namespace apus {

class Model;  // models/model.h

struct LayerRange {
  int64_t begin = 0, end = 0;
};

// This one runs everything as it is, here. Others override what they do differently; one that adds something to
// another's way of running a layer holds that other.
class LayerRunner {
 public:
  LayerRunner() = default;
  virtual ~LayerRunner() = default;
  LayerRunner(const LayerRunner&) = delete;
  LayerRunner& operator=(const LayerRunner&) = delete;

  virtual LayerRange layers(const Model& model) const;  // those that are run here
  // Before all parts: what they are to find in the step.
  virtual void prepare(const Inputs& /*in*/, Step& /*s*/) {}
  virtual at::Tensor embed(const Model& model, const Inputs& in, const Step& s);
  virtual at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s);
  virtual at::Tensor final_norm(const Model& model, const at::Tensor& x_TD);
  // Until the result is let go of, each rank makes passes of its own, as many as it likes and without gradients: all
  // that others would have to give is there. All ranks begin it together, and end it when they like.
  virtual std::shared_ptr<void> alone() { return nullptr; }
};

// Runs everything as another one does. Those made of it act on single parts.
class RunnerAround : public LayerRunner {
 public:
  void around(LayerRunner& inner) { inner_ = &inner; }  // before it runs anything
  LayerRange layers(const Model& model) const override { return inner_->layers(model); }
  void prepare(const Inputs& in, Step& s) override { inner_->prepare(in, s); }
  at::Tensor embed(const Model& model, const Inputs& in, const Step& s) override { return inner_->embed(model, in, s); }
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    return inner_->layer(model, i, x_TD, s);
  }
  at::Tensor final_norm(const Model& model, const at::Tensor& x_TD) override { return inner_->final_norm(model, x_TD); }

 private:
  LayerRunner* inner_ = nullptr;
};

// Positions where the step has none, rotary tables, embedding, layers, final norm -> hidden_TD.
at::Tensor run_layers(const Model& model, const Inputs& in, Step& s, LayerRunner& runner);
// Its two halves: what the step's numbers mean, and what is computed with it.
void prepare_step(const Model& model, const Inputs& in, Step& s, LayerRunner& runner);
at::Tensor run_prepared(const Model& model, const Inputs& in, const Step& s, LayerRunner& runner);

}  // namespace apus
