// SPDX-License-Identifier: Apache-2.0
// Low-rank changes of linear layers: LoRA, rsLoRA, DoRA. W' = W + s B A, with s = alpha / r or alpha / sqrt(r); DoRA
// scales each row of W' to a trained length. PEFT's lora_bias adds s c to the layer's output, c a trained vector.
#pragma once

#include <cmath>
#include <memory>
#include <string>

#include "nn/trained_delta.h"

namespace apus {

struct Dropout;  // nn/dropout.h

class Lora final : public TrainedDelta {
 public:
  struct Spec {
    int64_t in, out, rank;
    double alpha = 1, dropout = 0;
    bool rank_stabilised = false, dora = false, biased = false;
    // Keeps the dropout masks of layers apart.
    uint64_t id = 0;
    // Of an embedding: x are row numbers, `in` rows of size `out`; no dropout, no DoRA.
    bool looks_up = false;
    double scale() const {
      return alpha / (rank_stabilised ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
    }
  };
  // bias: of the layer it changes (DoRA leaves it alone), null when there is none.
  Lora(Spec spec, const Param* bias);

  at::Tensor apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s,
                   Memo* memo = nullptr) const override;
  bool only_adds() const override { return !spec_.dora && !spec_.looks_up && !spec_.biased; }
  bool looks_at_weight() const override { return magnitude_ && !ratio_.defined(); }
  at::Tensor merged_rows(const at::Tensor& rows, int64_t first) const override;
  at::Tensor merged_bias(const at::Tensor& bias) const override;
  bool changes_bias() const override { return spec_.biased; }
  std::pair<at::Tensor, at::Tensor> columns(const at::Tensor& x_TI, const Step& s) const override;

  void begin(Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) override;
  void settle(const at::Tensor& weight, at::ScalarType type) override;

  const Spec& spec() const { return spec_; }
  Param& a() { return a_; }
  Param& b() { return b_; }
  Param* magnitude() { return magnitude_; }
  Param* shift() { return shift_; }

 private:
  at::Tensor ratio_to(const at::Tensor& weight) const;
  at::Tensor apply_dora(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& weight, const Step& s) const;
  Spec spec_;
  const Param* bias_;
  Param &a_, &b_;               // [r, in], [out, r]
  Param* magnitude_ = nullptr;  // [out]
  Param* shift_ = nullptr;      // [out], of a `biased` one
  at::Tensor ratio_;            // [out] magnitude by length, once settled
};

// y + scale * dropout(x) a' b', added into y in place (y is a fresh product that nothing else holds). The memo: as of
// Delta::apply, which `owner` was asked for.
at::Tensor with_low_rank(const Delta& owner, const at::Tensor& y_TO, const at::Tensor& x_TI, const at::Tensor& a_RI,
                         const at::Tensor& b_OR, double scale, const Dropout& drop, Memo* memo);
// The same as columns: what the head multiplies besides.
std::pair<at::Tensor, at::Tensor> low_rank_columns(const at::Tensor& x_TI, const at::Tensor& a_RI,
                                                   const at::Tensor& b_OR, double scale, Dropout drop);

// The lengths of the rows of weight + scale * b a, f32 [out], without making that matrix.
at::Tensor changed_row_norms(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b, double scale);

// First values. "true"/"kaiming", "gaussian", "pissa", "pissa_niter_N", "olora"; "false": B random as well. PiSSA and
// OLoRA take the main part of the weight into the factors and subtract it from the weight: `layer`'s weight is changed
// in place. Factors of an embedding: A zero, B normal, whatever else is asked for.
void init_lora(Lora& lora, Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options);
bool init_changes_weight(const std::string& how);
void check_lora_init(const std::string& how);  // Fault::Usage for what is not known

}  // namespace apus
