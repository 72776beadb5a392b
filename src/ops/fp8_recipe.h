// SPDX-License-Identifier: Apache-2.0
// How training multiplies in FP8 (--fp8_format, --fp8_recipe). No tensor library.
#pragma once

#include <cstdint>

namespace apus {

enum class Fp8Type { E4m3, E5m2 };

struct Fp8Recipe {
  // What shares a scale. Tensor: all numbers of a tensor. Block: 128 of a row along the sum, of a weight 128 x 128; Mx:
  // 32 along the sum, of weights too. Scales of blocks are powers of two.
  enum class Scale { Tensor, Block, Mx } scale = Scale::Tensor;
  Fp8Type gradients = Fp8Type::E4m3;  // of results; inputs and weights are E4M3

  bool operator==(const Fp8Recipe&) const = default;
};

}  // namespace apus
