// SPDX-License-Identifier: Apache-2.0
// Kimi's delta attention: as a gated delta net, but each number of a key fades at a speed of its own.
#pragma once

#include <vector>

#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/state_layer.h"

namespace apus {

class KimiDelta : public StateLayer {
 public:
  KimiDelta(const KimiDeltaForm& form, const Place& place);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;

 private:
  Linear& linear(const char* name, int64_t in, int64_t out) {
    return child<Linear>(name, Linear::Spec{.in = in, .out = out});
  }
  // Of steps ("f") or gates ("g"): by way of a head's width, or at once.
  Linear& by_way_of(const char* name, Linear*& small);
  at::Tensor decay(const at::Tensor& x_TD, const Step& s) const;
  Taps& taps(const char* name) { return child<Taps>(name, form_.width(), form_.taps); }
  const KimiDeltaForm form_;
  Param &speed_, &step_bias_;
  Linear &q_, &k_, &v_;
  Taps &q_taps_, &k_taps_, &v_taps_;
  // Small ones first; null where one matrix makes it.
  Linear *step_a_ = nullptr, *gate_a_ = nullptr;
  Linear &step_b_, &gate_b_, &share_;
  Norm& norm_;
  Linear& out_;
};

}  // namespace apus
