// SPDX-License-Identifier: Apache-2.0
// The feed-forward block of a layer, nearly always gated: down(act(gate x) * up x).
#pragma once

#include "nn/activation.h"
#include "nn/linear.h"

namespace apus {

at::Tensor activated(Activation act, const at::Tensor& x);  // of those without learnt numbers
// act(gate) * up; with a limit above 0, gates are kept below it and ups within it.
at::Tensor gated(Activation act, const at::Tensor& gate_TF, const at::Tensor& up_TF, double limit = 0);

class FeedForward : public Module {
 public:
  virtual at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const = 0;
  // Said by the layer around it: the result is added to something and read by nobody else.
  virtual void result_is_only_added() {}
};

// x > 0: p x^2 + x / 2. Elsewhere: (exp(x) - 1 - x) n + x / 2. Of p and n, which are above 0 and above 1/2, the file
// holds numbers that softplus is applied to.
class Xielu : public Module {
 public:
  Xielu();
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  Param &positive_, &negative_, &beta_, &eps_;  // the last two are always 1/2 and nearly 0
};

class Mlp : public FeedForward {
 public:
  struct Spec {
    bool bias = false, down_bias = false;
    bool gate_last = false;  // of FusedGate
    Activation act = Activation::Silu;
    FeedForwardKind kind = FeedForwardKind::Gated;
    FeedForwardNames names = {};
    // The gate before its activation, and the result, are multiplied by these.
    double gate_scale = 1, out_scale = 1;
    double limit = 0;  // of gated()
    // Above 0: of the gates so large a share, by their mean and deviation, becomes zero before the activation.
    double sparsity = 0;
  };
  Mlp(int64_t hidden, int64_t ffn, Spec spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;
  void result_is_only_added() override { down_.result_is(ResultKind::OnlyAdded); }
  void prepare_inference() override { gate_up_.prepare_inference(); }

 private:
  std::vector<Linear*> inner(int64_t hidden, int64_t ffn);
  at::Tensor plain(const at::Tensor& inner_TF) const;
  const Spec spec_;
  LinearGroup gate_up_;  // what reads the input: gate and up, both in one matrix, or c_fc
  Linear& down_;
  Xielu* xielu_ = nullptr;
};

}  // namespace apus
