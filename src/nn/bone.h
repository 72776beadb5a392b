// SPDX-License-Identifier: Apache-2.0
// Bone, which PEFT now calls MiSS: the inputs are cut into shards of r numbers, and every shard of W gets the same
// block M [r, out] added: y' = y + (sum of the shards of x) M. The last shard of x is filled up with zeros.
#pragma once

#include "nn/trained_delta.h"

namespace apus {

class Bone final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out, rank;
    uint64_t id = 0;        // of its first values
    bool old_name = false;  // bone_block, as PEFT wrote it before it was called miss_block
  };
  explicit Bone(Spec spec);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool looks_at_weight() const override { return false; }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;
  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

  const Spec& spec() const { return spec_; }
  Param& block() { return block_; }

 private:
  at::Tensor folded(const at::Tensor& x_TI) const;  // [T, r]

  Spec spec_;
  Param& block_;  // [r, out]
};

}  // namespace apus
