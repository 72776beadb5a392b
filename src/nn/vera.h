// SPDX-License-Identifier: Apache-2.0
// VeRA: W' = W + diag(b) B diag(d) A. The vectors b and d of each layer are trained. A and B are random numbers that
// stay as they are and that all layers share: as wide as the widest of them, each of which takes their first columns
// and rows.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "nn/trained_delta.h"

namespace apus {

class SharedMatrices {
 public:
  // a [r, widest in], b [widest out, r], f32.
  SharedMatrices(at::Tensor a, at::Tensor b) { put(std::move(a), std::move(b)); }
  // As PEFT draws them: numbers of torch's generator for processors, seeded with the key.
  static std::shared_ptr<SharedMatrices> drawn(int64_t rank, int64_t in, int64_t out, uint64_t key);
  void put(at::Tensor a, at::Tensor b);
  std::pair<at::Tensor, at::Tensor> on(at::Device device);  // copied there once

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // the first is what was put
};

class Vera final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out, rank;
    double dropout = 0, first_d = 0.1;  // d begins with this number
    uint64_t id = 0;                    // keeps the dropout masks of layers apart
  };
  Vera(Spec spec, std::shared_ptr<SharedMatrices> shared);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool only_adds() const override { return true; }
  bool looks_at_weight() const override { return false; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

  SharedMatrices& shared() { return *shared_; }

 private:
  // A [r, in] and diag(b) B diag(d) [out, r].
  std::pair<at::Tensor, at::Tensor> factors() const;

  Spec spec_;
  std::shared_ptr<SharedMatrices> shared_;
  Param &b_, &d_;                              // [out], [r]
  std::pair<at::Tensor, at::Tensor> settled_;  // the factors, once settled
};

}  // namespace apus
