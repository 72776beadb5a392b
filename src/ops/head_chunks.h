// SPDX-License-Identifier: Apache-2.0
// What head_loss and head_logprob share: only tokens with a label meet the head, some at a time,
// so that [T, V] never exists.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/ops.h"
#include "tensor/compat.h"

namespace apus::ops {

using HeadNeeds = std::array<bool, 4>;  // the gradients of HeadFactors' four tensors, in their order

// The tokens with a label >= 0, in order.
class LabelledTokens {
 public:
  LabelledTokens(const at::Tensor& hidden_TD, const OptionalTensor& low_TR, const at::Tensor& label_T);
  int64_t count() const { return label.numel(); }
  at::Tensor pick(const at::Tensor& x_T) const;  // [T, ...] -> [count, ...]
  at::Tensor spread(const at::Tensor& x) const;  // [count, ...] -> [T, ...], 0 elsewhere

  // Calls fn(begin, n) for runs of at most `chunk` tokens; 0: as many as keep the f32 logits of one run small.
  template <class Fn>
  void for_chunks(int64_t vocabulary, int64_t chunk, bool head_gradient, Fn&& fn) const {
    const int64_t step = chunk > 0 ? chunk : default_chunk(vocabulary, head_gradient);
    for (int64_t begin = 0; begin < count(); begin += step) fn(begin, std::min(step, count() - begin));
  }

  at::Tensor hidden, low, label;  // [count, D], [count, R] or undefined, int64 [count]

 private:
  int64_t default_chunk(int64_t vocabulary, bool head_gradient) const;
  int64_t total_;
  at::Tensor row_;  // undefined: all tokens
};

// The logits of each chunk, and the gradients of hidden states and weights, summed up chunk by chunk from those of the
// logits. The gradient of a bf16 or f16 weight is summed in f32.
class HeadProducts {
 public:
  HeadProducts(const LabelledTokens& tokens, const at::Tensor& head_VD, const OptionalTensor& low_VR, HeadNeeds need,
               double softcap);
  // [n, V] in f32 (f64 for f64), of tokens [begin, begin + n), bent.
  at::Tensor logits(int64_t begin, int64_t n);
  bool needed() const;
  bool head_gradient() const { return sides_[0].weight_sum.defined(); }
  // Of the logits that were asked for last.
  void add(int64_t begin, const at::Tensor& dlogits_nV);
  // [T, D]; undefined when not needed. Side 0: hidden and head, 1: the low pair.
  at::Tensor d_rows(size_t side) const;
  at::Tensor d_weight(size_t side) const;  // [V, D]

 private:
  struct Side {
    at::Tensor rows, weight;  // undefined where there is none
    at::Tensor d_rows, weight_sum;
  };
  const LabelledTokens& tokens_;
  std::array<Side, 2> sides_;
  double softcap_;
  at::Tensor slope_nV_;  // by how much bent logits grow with those they were made of
};

// x *= factor, rounding once: a half-typed tensor is widened a piece at a time, as its type cannot hold the factor.
void scale_gradient(at::Tensor x, const at::Tensor& factor);

}  // namespace apus::ops
