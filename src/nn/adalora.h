// SPDX-License-Identifier: Apache-2.0
// AdaLoRA: W' = W + s B diag(E) A, a low-rank change in the form of a singular value decomposition. While it is trained
// the values in E that matter least become 0 (train/rank_allocator). s = alpha / the rank it began with.
#pragma once

#include "nn/trained_delta.h"

namespace apus {

class AdaLora final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out, rank;
    double alpha = 1, dropout = 0;
    // Of the scale. More than `rank` where a file has only what was left.
    int64_t first_rank = 0;
    // Keeps the dropout masks of layers apart.
    uint64_t id = 0;
    double scale() const { return alpha / (static_cast<double>(first_rank) + 1e-5); }  // as PEFT has it
  };
  explicit AdaLora(Spec spec);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool only_adds() const override { return true; }
  bool looks_at_weight() const override { return false; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

  const Spec& spec() const { return spec_; }
  Param& a() { return a_; }
  Param& e() { return e_; }
  Param& b() { return b_; }

 private:
  at::Tensor scaled_a() const { return a_.data * e_.data; }

  Spec spec_;
  Param &a_, &e_, &b_;  // [r, in], [r, 1], [out, r]
};

}  // namespace apus
