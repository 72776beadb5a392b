// SPDX-License-Identifier: Apache-2.0
// BOFT: the inputs are rotated and the outputs scaled, y' = s * (x R W') + bias. R is a product of `factors` orthogonal
// matrices, each of which is made of blocks of `block` numbers, between permutations that mix the blocks (a butterfly).
// A block is (I - K)(I + K)^-1 of a skew-symmetric K, which is half of what is trained less its mirror image (Cayley).
#pragma once

#include <vector>

#include "nn/trained_delta.h"

namespace apus {

class Boft final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out, block, factors = 1;
    uint64_t id = 0;  // of its first values
    int64_t blocks() const { return in / block; }
  };
  // bias: of the layer it changes, which is not scaled; null when there is none.
  Boft(Spec spec, const Param* bias);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

  const Spec& spec() const { return spec_; }
  Param& rotation() { return rotation_; }
  Param& scale() { return scale_; }

 private:
  at::Tensor rotated(const at::Tensor& x_TI) const;  // x R

  Spec spec_;
  const Param* bias_;
  Param& rotation_;     // [factors, blocks, block, block]
  Param& scale_;        // [out, 1]
  at::Tensor settled_;  // the orthogonal blocks, once settled
};

// The orthogonal blocks of the trained ones, [..., h, h]; f32.
at::Tensor cayley_blocks(const at::Tensor& trained);
// Where the numbers of a factor come from: `groups` equal runs of the n numbers, in each of which the half blocks (of
// `half` numbers) at even places go before those at odd ones.
std::vector<int64_t> butterfly_order(int64_t n, int64_t groups, int64_t half);

}  // namespace apus
