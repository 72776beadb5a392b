// SPDX-License-Identifier: Apache-2.0
// What goes into linear layers, told to whoever watches them: an adapter that changes nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/linear.h"

namespace apus {

struct NamedLinear {
  std::string name;
  Linear* layer;
};

// Watches for as long as it lives.
class LayerInputs {
 public:
  using Seen = std::function<void(const NamedLinear& layer, const at::Tensor& x_TI)>;
  LayerInputs(std::vector<NamedLinear> layers, Seen seen);
  ~LayerInputs();
  LayerInputs(const LayerInputs&) = delete;
  LayerInputs& operator=(const LayerInputs&) = delete;

 private:
  std::vector<NamedLinear> layers_;
};

}  // namespace apus
