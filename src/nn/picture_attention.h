// SPDX-License-Identifier: Apache-2.0
// Attention of a text's tokens to the pictures that they see (Step::pictures), or to the sound that they hear, and to
// nothing else: queries of the tokens, keys and values of what a tower made of these, no positions.
#pragma once

#include <optional>

#include "nn/linear.h"
#include "nn/mixer.h"
#include "nn/norm.h"

namespace apus {

class PictureAttention : public Mixer {
 public:
  struct Spec {
    int64_t layer = 0;
    int64_t hidden, heads, kv_heads, head_dim;
    std::optional<NormSpec> norm = {};  // of each head's queries and keys
    int64_t layers = 1;                 // so many read pictures: then a picture's rows are needed no longer
    bool bias = false;                  // of all but the keys
    const char* out_name = "o_proj";
  };
  explicit PictureAttention(const Spec& spec);
  at::Tensor operator()(const at::Tensor& x_TD, const Step& s) const override;  // zeros for tokens that see none

 private:
  struct Keys {
    at::Tensor k_MKH, v_MKH;
  };
  Keys keys(const at::Tensor& row_MD, const Step& s) const;
  // Of each of the step's pictures.
  std::vector<Keys> all_keys(const Step& s, at::Device device) const;

  const Spec spec_;
  Linear &q_, &k_, &v_, &o_;
  Norm *q_norm_ = nullptr, *k_norm_ = nullptr;
};

}  // namespace apus
