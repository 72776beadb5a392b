// SPDX-License-Identifier: Apache-2.0
// Layers that keep a state of fixed size of each sequence, where attention keeps keys and values of all its tokens
// (state_form.h). Training runs whole packed rows in chunks; with a cache the states go on from step to step.
#pragma once

#include <memory>

#include "nn/mixer.h"
#include "nn/state_form.h"
#include "ops/state_scan.h"

namespace apus {

class StateLayer : public Mixer {
 public:
  // In which layer of how many, the eps of the family's norms, and by which of a step's turns the layer turns.
  struct Place {
    int64_t layer = 0, layers = 0, hidden = 0;
    double eps = 1e-6;
    int turn = -1;
  };

 protected:
  explicit StateLayer(Place place) : place_(place) {}
  // speed_NK, if defined: what each head's decay is multiplied by, for each number of a key.
  at::Tensor scanned(const ops::StateInputs& in, const Step& s, const at::Tensor& speed_NK = {}) const;
  const Place place_;
};

std::unique_ptr<Mixer> make_state_layer(const StateForm& form, const StateLayer::Place& place);

// Over each channel, looking back only; then silu, where it is asked for. In f32 (or f64), whatever comes.
class CausalConv : public Module {
 public:
  CausalConv(int64_t layer, int64_t channels, int64_t taps, bool bias, bool silu = true);
  at::Tensor operator()(const at::Tensor& x_TC, const Step& s) const;

 private:
  const int64_t layer_;
  Param& weight_;  // [C, 1, taps]
  Param* bias_ = nullptr;
  const bool silu_;
};
// The same with weights [C, taps] from elsewhere; bias_C may be undefined, and nothing is applied to the result.
at::Tensor convolved(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C, int64_t layer,
                     const Step& s);

// The weight of a convolution that others are put together with.
struct Taps : Module {
  Taps(int64_t channels, int64_t taps) : weight(param("weight", {channels, 1, taps})) {}
  Param& weight;
};

// At least f32.
at::Tensor widened(const at::Tensor& x);
// Without a gradient by the fused operator, whose bits do not depend on where in a tensor a number stands.
at::Tensor silu_of(const at::Tensor& x);

}  // namespace apus
