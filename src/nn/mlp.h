// SPDX-License-Identifier: Apache-2.0
// The gated feed-forward block: down(silu(gate x) * up x).
#pragma once

#include "nn/linear.h"

namespace apus {

class FeedForward : public Module {
 public:
  virtual at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const = 0;
};

class Mlp : public FeedForward {
 public:
  // only_added: the result is added to something and read by nobody else, so a second run of the layer can do without
  // it.
  Mlp(int64_t hidden, int64_t ffn, bool bias = false, bool only_added = false);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;
  void prepare_inference() override { gate_up_.prepare_inference(); }

 private:
  Linear &gate_, &up_, &down_;
  LinearGroup gate_up_;
  bool only_added_;
};

}  // namespace apus
