// SPDX-License-Identifier: Apache-2.0
// The gated feed-forward block: down(act(gate x) * up x), where act is nearly always silu.
#pragma once

#include "nn/linear.h"

namespace apus {

enum class Activation { Silu, Gelu, GeluTanh, Relu };
at::Tensor gated(Activation act, const at::Tensor& gate_TF, const at::Tensor& up_TF);  // act(gate) * up

class FeedForward : public Module {
 public:
  virtual at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const = 0;
  // Said by the layer around it: the result is added to something and read by nobody else.
  virtual void result_is_only_added() {}
};

class Mlp : public FeedForward {
 public:
  struct Spec {
    bool bias = false;
    Activation act = Activation::Silu;
  };
  Mlp(int64_t hidden, int64_t ffn, Spec spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;
  void result_is_only_added() override { down_.result_is(ResultKind::OnlyAdded); }
  void prepare_inference() override { gate_up_.prepare_inference(); }

 private:
  Linear &gate_, &up_, &down_;
  LinearGroup gate_up_;
  const Spec spec_;
};

}  // namespace apus
