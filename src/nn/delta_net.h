// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next's gated delta net: a head's state is read under each token's key, and what the token's value differs by
// from that is written back, as far as the token says.
#pragma once

#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/state_layer.h"

namespace apus {

// `scale` times each head's vector of length one.
at::Tensor at_unit_length(const at::Tensor& x_TGK, double scale);

class DeltaNet : public StateLayer {
 public:
  DeltaNet(const DeltaForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  // What the input is made into: [T, all queries, keys and values], [T, all gates], [T, N] shares and steps.
  struct Made {
    at::Tensor mixed, gate, share, step;
  };
  std::vector<Linear*> input_matrices(int64_t hidden);
  std::vector<Taps*> convolutions();
  Made made(const at::Tensor& x_TD, const Step& s) const;

  const DeltaForm form_;
  Param &speed_, &step_bias_;
  at::Tensor mixed(const at::Tensor& x_TC, const Step& s) const;
  CausalConv* conv_ = nullptr;
  std::vector<Linear*> in_;
  std::vector<Taps*> taps_;  // where queries, keys and values have a convolution each
  Norm& norm_;
  Linear& out_;
};

}  // namespace apus
