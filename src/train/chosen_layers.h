// SPDX-License-Identifier: Apache-2.0
// LISA: for some updates only a few layers, drawn at random, are trained, beside embeddings, head and final norm; then
// others are drawn. The layers that rest have no gradients, and no state in the optimizer.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "nn/module.h"
#include "train/optimizer.h"

namespace apus {

// So many of `layers`, as a function of the seed and the number of the draw.
std::set<int64_t> drawn_layers(int64_t layers, int64_t count, uint64_t seed, int64_t draw);

class ChosenLayers {
 public:
  struct Spec {
    int64_t layers = 0, count = 0, interval = 20;
    uint64_t seed = 42;
  };
  // Of a model whose layers the names number. The optimizer outlives this.
  ChosenLayers(Module& model, Optimizer& optimizer, Spec spec);
  // Before the update that follows so many: whose layers are trained, the others rest.
  void before_step(int64_t steps);

 private:
  Optimizer& optimizer_;
  Spec spec_;
  std::vector<int64_t> layer_of_;  // of each of the optimizer's parameters; -1: of none
  int64_t draw_ = -1;
};

}  // namespace apus
