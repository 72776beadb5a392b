// SPDX-License-Identifier: Apache-2.0
#include "ops/head_chunks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "ops/op.h"
#include "ops/ops.h"
#include "tensor/host_copy.h"
#include "tensor/upload.h"

namespace apus::ops {

at::Tensor labelled_rows(const at::Tensor& label_T) {
  const HostNumbers known = label_T.is_cpu() ? nullptr : known_on_host(label_T);
  if (!known) return at::nonzero(label_T >= 0).squeeze(1);
  std::vector<int64_t> rows;
  for (size_t t = 0; t < known->size(); ++t)
    if ((*known)[t] >= 0) rows.push_back(static_cast<int64_t>(t));
  return uploaded(at::tensor(rows, at::kLong), label_T.device());
}

LabelledTokens::LabelledTokens(const at::Tensor& hidden_TD, const OptionalTensor& low_TR, const at::Tensor& label_T)
    : hidden(hidden_TD), low(or_undefined(low_TR)), label(label_T.to(at::kLong)), total_(label_T.numel()) {
  const at::Tensor row = labelled_rows(label);
  if (row.numel() == total_) return;
  row_ = row;
  hidden = pick(hidden);
  if (low.defined()) low = pick(low);
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

HeadProducts::HeadProducts(const LabelledTokens& tokens, const at::Tensor& head_VD, const OptionalTensor& low_VR,
                           HeadNeeds need, double softcap)
    : tokens_(tokens),
      sides_{Side{tokens.hidden, head_VD, {}, {}}, Side{tokens.low, or_undefined(low_VR), {}, {}}},
      softcap_(softcap) {
  for (size_t i = 0; i < sides_.size(); ++i) {
    Side& s = sides_[i];
    if (!s.weight.defined()) continue;
    if (need[2 * i]) s.d_rows = at::empty(s.rows.sizes(), s.rows.options());
    if (need[2 * i + 1]) s.weight_sum = at::zeros(s.weight.sizes(), s.weight.options().dtype(wide_type(s.weight)));
  }
}

bool HeadProducts::needed() const {
  return std::any_of(sides_.begin(), sides_.end(),
                     [](const Side& s) { return s.d_rows.defined() || s.weight_sum.defined(); });
}

at::Tensor HeadProducts::logits(int64_t begin, int64_t n) {
  at::Tensor sum;
  for (const Side& s : sides_) {
    if (!s.weight.defined()) continue;
    const at::Tensor product = wide_linear(s.rows.narrow(0, begin, n), s.weight, {});
    sum = sum.defined() ? sum.add_(product) : product;
  }
  if (softcap_ <= 0) return sum;
  sum = softcapped(sum, softcap_);
  if (needed()) slope_nV_ = 1 - (sum / softcap_).square_();
  return sum;
}

void HeadProducts::add(int64_t begin, const at::Tensor& dlogits_nV) {
  const at::Tensor d = (softcap_ > 0 ? dlogits_nV * slope_nV_ : dlogits_nV).to(tokens_.hidden.scalar_type());
  for (Side& s : sides_) {
    if (s.d_rows.defined()) s.d_rows.narrow(0, begin, d.size(0)).copy_(matmul(d, s.weight));
    if (!s.weight_sum.defined()) continue;
    const at::Tensor x = s.rows.narrow(0, begin, d.size(0));
    if (d.scalar_type() == s.weight_sum.scalar_type()) {
      s.weight_sum.addmm_(d.t(), x);
      continue;
    }
    // A part of the vocabulary at a time: the product of all of it would be as large as the head.
    const int64_t part = int64_t{1} << 14, vocabulary = d.size(1);
    for (int64_t v = 0; v < vocabulary; v += part) {
      const int64_t n = std::min(part, vocabulary - v);
      s.weight_sum.narrow(0, v, n).add_(matmul(d.narrow(1, v, n).t(), x));
    }
  }
}

at::Tensor HeadProducts::d_rows(size_t side) const {
  const Side& s = sides_[side];
  return s.d_rows.defined() ? tokens_.spread(s.d_rows) : at::Tensor();
}
at::Tensor HeadProducts::d_weight(size_t side) const {
  const Side& s = sides_[side];
  return s.weight_sum.defined() ? s.weight_sum.to(s.weight.scalar_type()) : at::Tensor();
}

namespace {
at::Tensor bent(const at::Tensor& x, double softcap) {
  return (widen(x) / softcap).tanh().mul(softcap).to(x.scalar_type());
}
at::Tensor bent_shape(const at::Tensor& x, double) { return at::empty_like(x); }
}  // namespace

// Without a gradient by the device's own tangent, so that an engine's logits are bent as those of head_logprob are.
at::Tensor softcapped(const at::Tensor& x, double softcap) {
  if (softcap <= 0) return x;
  if (any_requires_grad(x)) return bent(x, softcap);
  static const auto op = handle<decltype(bent)>("apus::softcapped");
  const BelowAutograd guard;
  return op.call(x, softcap);
}

void scale_gradient(at::Tensor x, const at::Tensor& factor) {
  if (x.scalar_type() == wide_type(x)) {
    x.mul_(factor);
    return;
  }
  const int64_t rows = std::max<int64_t>(1, (int64_t{4} << 20) / std::max<int64_t>(1, x.size(1)));
  for (int64_t begin = 0; begin < x.size(0); begin += rows) {
    at::Tensor piece = x.narrow(0, begin, std::min(rows, x.size(0) - begin));
    piece.copy_(widen(piece).mul_(factor));
  }
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) { m.def("softcapped(Tensor x, float softcap) -> Tensor"); }
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) { m.impl("softcapped", apus::ops::bent); }
TORCH_LIBRARY_IMPL(apus, Meta, m) { m.impl("softcapped", apus::ops::bent_shape); }
