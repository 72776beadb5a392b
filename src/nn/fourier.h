// SPDX-License-Identifier: Apache-2.0
// FourierFT: the change of a weight [out, in] is the real part of the inverse Fourier transform of a matrix that is 0
// but at a few places, drawn from a seed, whose numbers are trained. Every layer of a size has the same places.
#pragma once

#include <vector>

#include "nn/trained_delta.h"

namespace apus {

// The first `count` of a random order of n numbers, as torch.randperm(n) draws it from a generator with this seed.
std::vector<int64_t> first_of_order(int64_t n, int64_t count, uint32_t seed);

class FourierChange final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out, frequencies;
    double scaling;
    uint32_t places;  // the seed of the places
    uint64_t id = 0;  // of its first values
  };
  explicit FourierChange(Spec spec);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool looks_at_weight() const override { return false; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

 private:
  at::Tensor change() const;  // [out, in], f32

  Spec spec_;
  Param& spectrum_;     // [frequencies]
  at::Tensor places_;   // [frequencies], in the flat matrix
  at::Tensor settled_;  // the change, once settled
};

}  // namespace apus
