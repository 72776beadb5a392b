// SPDX-License-Identifier: Apache-2.0
// GPTQ: a weight is rounded a column at a time, and the columns behind it make good for the error, as far as the inputs
// of calibration say that they can (Frantar et al. 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include "quant/gptq.h"

namespace apus {

// Of the inputs X [in, tokens] of a layer: 2 X X', the mean over sequences.
class Hessian {
 public:
  void add(const at::Tensor& x_TI, int64_t sequences);
  const at::Tensor& matrix() const { return matrix_II_; }  // f32; undefined before the first add()

 private:
  at::Tensor matrix_II_;
  int64_t sequences_ = 0;
};

struct GptqSearch {
  quant::GptqForm form;
  bool symmetric = true;
  bool by_importance = false;  // "desc_act": columns with the largest inputs first
  bool fixed_groups = false;   // "static_groups": ranges of the weight as it was before any correction
  double damp = 0.1;           // of the mean of the diagonal, added to it
};

// weight [out, in] f32 and hessian [in, in] on the processor. A Hessian that is not finite, or has no inverse, is
// Fault::Model; `name` is the layer's, for errors.
quant::Integers round_by_gptq(const at::Tensor& weight_OI, const at::Tensor& hessian_II, const GptqSearch& search,
                              const std::string& name);

}  // namespace apus
