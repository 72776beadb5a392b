// SPDX-License-Identifier: Apache-2.0
#include "ops/head_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>

#include "ops/op.h"

namespace apus::ops {

LabelledTokens::LabelledTokens(const at::Tensor& hidden_TD, const at::Tensor& label_T)
    : hidden(hidden_TD), label(label_T.to(at::kLong)), total_(label_T.numel()) {
  const at::Tensor row = at::nonzero(label >= 0).squeeze(1);
  if (row.numel() == total_) return;
  row_ = row;
  hidden = pick(hidden);
  label = pick(label);
}

at::Tensor LabelledTokens::pick(const at::Tensor& x_T) const {
  return row_.defined() ? x_T.index_select(0, row_) : x_T;
}

at::Tensor LabelledTokens::spread(const at::Tensor& x) const {
  if (!row_.defined()) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[0] = total_;
  return at::zeros(sizes, x.options()).index_copy_(0, row_, x);
}

// 32 MB of f32 logits keep a processor's caches and memory at peace; an accelerator wants more rows per matmul. A run
// also reads and writes the head's gradient once, which few rows do not repay.
int64_t LabelledTokens::default_chunk(int64_t vocabulary, bool head_gradient) const {
  const int64_t bytes = int64_t{hidden.is_cpu() ? 32 : 256} << 20;
  return std::max<int64_t>(head_gradient ? 128 : 16, bytes / (4 * std::max<int64_t>(1, vocabulary)));
}

at::Tensor chunk_logits(const LabelledTokens& tokens, const at::Tensor& head_VD, int64_t begin, int64_t n) {
  return widen(matmul(tokens.hidden.narrow(0, begin, n), head_VD.t()));
}

HeadGradients::HeadGradients(const LabelledTokens& tokens, const at::Tensor& head_VD, bool need_hidden, bool need_head)
    : tokens_(tokens), head_VD_(head_VD) {
  if (need_hidden) hidden_ = at::empty(tokens.hidden.sizes(), tokens.hidden.options());
  if (need_head) head_sum_ = at::zeros(head_VD.sizes(), head_VD.options().dtype(wide_type(head_VD)));
}

void HeadGradients::add(int64_t begin, const at::Tensor& dlogits_nV) {
  const at::Tensor d = dlogits_nV.to(head_VD_.scalar_type());
  if (hidden_.defined()) hidden_.narrow(0, begin, d.size(0)).copy_(matmul(d, head_VD_));
  if (!head_sum_.defined()) return;
  const at::Tensor x = tokens_.hidden.narrow(0, begin, d.size(0));
  if (d.scalar_type() == head_sum_.scalar_type()) {
    head_sum_.addmm_(d.t(), x);
    return;
  }
  // A part of the vocabulary at a time: the product of all of it would be as large as the head.
  const int64_t part = int64_t{1} << 14, vocabulary = d.size(1);
  for (int64_t v = 0; v < vocabulary; v += part) {
    const int64_t n = std::min(part, vocabulary - v);
    head_sum_.narrow(0, v, n).add_(matmul(d.narrow(1, v, n).t(), x));
  }
}

at::Tensor HeadGradients::hidden() const { return hidden_.defined() ? tokens_.spread(hidden_) : at::Tensor(); }
at::Tensor HeadGradients::head() const {
  return head_sum_.defined() ? head_sum_.to(head_VD_.scalar_type()) : at::Tensor();
}

}  // namespace apus::ops
