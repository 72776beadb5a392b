// SPDX-License-Identifier: Apache-2.0
// Products of FP8 numbers in training: what is multiplied, forward and backward, is rounded to FP8 with scales, and
// summed in f32. No device multiplies such numbers itself here: the product is that of the same numbers in the type of
// x, which holds them exactly.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/fp8_recipe.h"

namespace apus::ops {

// Rounded to the nearest even; what is larger becomes the largest one.
at::Tensor rounded_to_fp8(const at::Tensor& x, Fp8Type type);

// [R, K] as FP8 numbers times scales. Of scales that are powers of two (Block, Mx) the numbers are those products.
struct Fp8Numbers {
  at::Tensor numbers;
  at::Tensor scale;  // of all of them; undefined: it is in them
};
// `square`: blocks of 128 x 128, as weights have them with Block; else of a row.
Fp8Numbers to_fp8(const at::Tensor& x_RK, Fp8Type type, Fp8Recipe::Scale scale, bool square);

// x w' + b with FP8 numbers; differentiable. `known`: the result, where it was made before.
at::Tensor fp8_linear(const at::Tensor& x_TD, const at::Tensor& weight_OD, const at::Tensor& bias_O,
                      const Fp8Recipe& recipe, const at::Tensor& known = {});
// Rows in runs, each run times a matrix of the stack [E, O, I] (ops::grouped_linear).
at::Tensor fp8_grouped_linear(const at::Tensor& x_MI, const at::Tensor& weight_EOI, const std::vector<int64_t>& count,
                              const Fp8Recipe& recipe);

}  // namespace apus::ops
