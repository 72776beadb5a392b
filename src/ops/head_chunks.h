// SPDX-License-Identifier: Apache-2.0
// What head_loss and head_logprob share: only tokens with a label meet the head, some at a time, so that [T, V] never
// exists.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

namespace apus::ops {

// The tokens with a label >= 0, in order.
class LabelledTokens {
 public:
  LabelledTokens(const at::Tensor& hidden_TD, const at::Tensor& label_T);
  int64_t count() const { return label.numel(); }
  at::Tensor pick(const at::Tensor& x_T) const;  // [T, ...] -> [count, ...]
  at::Tensor spread(const at::Tensor& x) const;  // [count, ...] -> [T, ...], 0 elsewhere

  // Calls fn(begin, n) for runs of at most `chunk` tokens; 0: as many as keep the f32 logits of one run small.
  template <class Fn>
  void for_chunks(int64_t vocabulary, int64_t chunk, bool head_gradient, Fn&& fn) const {
    const int64_t step = chunk > 0 ? chunk : default_chunk(vocabulary, head_gradient);
    for (int64_t begin = 0; begin < count(); begin += step) fn(begin, std::min(step, count() - begin));
  }

  at::Tensor hidden, label;  // [count, D], int64 [count]

 private:
  int64_t default_chunk(int64_t vocabulary, bool head_gradient) const;
  int64_t total_;
  at::Tensor row_;  // undefined: all tokens
};

// hidden head' in f32 (f64 for f64) for tokens [begin, begin + n).
at::Tensor chunk_logits(const LabelledTokens& tokens, const at::Tensor& head_VD, int64_t begin, int64_t n);

// The gradients of hidden and head, gathered from those of the logits chunk by chunk. That of a half-typed head is
// summed in f32.
class HeadGradients {
 public:
  HeadGradients(const LabelledTokens& tokens, const at::Tensor& head_VD, bool need_hidden, bool need_head);
  bool needed() const { return hidden_.defined() || head_sum_.defined(); }
  void add(int64_t begin, const at::Tensor& dlogits_nV);
  at::Tensor hidden() const;  // [T, D]; undefined when not needed
  at::Tensor head() const;    // [V, D]; undefined when not needed

 private:
  const LabelledTokens& tokens_;
  at::Tensor head_VD_, hidden_, head_sum_;
};

}  // namespace apus::ops
