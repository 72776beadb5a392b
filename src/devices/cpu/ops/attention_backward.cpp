// SPDX-License-Identifier: Apache-2.0
// Gradient of attention over packed sequences. One piece of work is a query head of a sequence; scores are computed
// transposed (rows are keys), so that probabilities and their gradients are at once left-hand matrices for dV and dK.
// The gradients of keys and values of one head are summed over its group at the end, in a fixed order: results do not
// depend on threads.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "devices/cpu/kernels/attention.h"
#include "devices/cpu/kernels/left.h"
#include "devices/cpu/ops/tensors.h"
#include "tensor/compat.h"

namespace apus::cpu {
namespace {

constexpr int64_t kBlock = 128;  // keys, and queries, of a tile

// A matrix [rows, h] of tokens `stride` apart.
template <class E>
struct Matrix {
  const E* data;
  int64_t stride;
  const E* operator[](int64_t i) const { return data + i * stride; }
};

template <class E>
struct HeadInputs {
  Matrix<E> q, k, v, out, grad;
  const float* lse;
  int64_t queries, keys, h, hv;  // the size of keys and that of values
};

int64_t in_panels(int64_t n) { return (n + kPanel - 1) / kPanel * kPanel; }

template <class E>
class HeadGradient {
 public:
  HeadGradient(const HeadInputs<E>& x, View view, const Scores& scores)
      : x_(x),
        view_(view),
        rule_(scores),
        scale_(static_cast<float>(scores.scale)),
        width_(in_panels(x.h)),
        depth_(padded_depth<E>(x.h)),
        v_width_(in_panels(x.hv)),
        v_depth_(padded_depth<E>(x.hv)),
        padded_(in_panels(x.queries)) {}

  // dq: rows dq_stride apart; dk, dv: f32 [keys, width], not yet scaled (dk) nor summed over the group.
  void run(E* dq, int64_t dq_stride, float* dk, float* dv) {
    prepare();
    std::fill_n(dk, x_.keys * width_, 0.0f);
    std::fill_n(dv, x_.keys * v_width_, 0.0f);
    for (int64_t j = 0; j < x_.keys; j += kBlock)
      key_block(j, std::min(kBlock, x_.keys - j), dk + j * width_, dv + j * v_width_);
    finish(dq, dq_stride);
  }

 private:
  enum Slot {
    kQT = 2,
    kGradT,
    kQ,
    kGrad,
    kDqT,
    kRowsum,
    kScores,
    kDp,
    kProbs,
    kDs,
    kDsPanels,
    kKT,
    kKeyRows,
    kValueRows,
    kWide
  };

  static E* elements(int slot, int64_t count) { return reinterpret_cast<E*>(scratch(slot, count)); }
  int64_t offset() const { return x_.keys - x_.queries; }

  // Queries and output gradients in the two packed forms, f32 sums for dq, and per query:
  // log-sum (base 2) and grad . out.
  void prepare() {
    q_t_ = elements(kQT, padded_ * depth_), grad_t_ = elements(kGradT, padded_ * v_depth_);
    q_ = elements(kQ, blocks() * kBlock * width_), grad_ = elements(kGrad, blocks() * kBlock * v_width_);
    dq_t_ = scratch(kDqT, padded_ * width_);
    lse2_ = scratch(kRowsum, 2 * padded_), delta_ = lse2_ + padded_;
    std::fill_n(dq_t_, padded_ * width_, 0.0f);
    std::fill_n(lse2_, padded_, std::numeric_limits<float>::infinity());
    std::fill_n(delta_, padded_, 0.0f);
    pack(x_.q, x_.h, q_t_, q_);
    pack(x_.grad, x_.hv, grad_t_, grad_);
    float *a = scratch(kScores, std::max(kBlock * kBlock, 2 * v_width_)), *b = a + v_width_;
    for (int64_t i = 0; i < x_.queries; ++i) {
      if (x_.lse[i] != -std::numeric_limits<float>::infinity()) lse2_[i] = x_.lse[i] * 1.44269504088896341f;
      row_kernels<E>().widen(x_.hv, x_.out[i], a);
      row_kernels<E>().widen(x_.hv, x_.grad[i], b);
      float sum = 0;
      for (int64_t d = 0; d < x_.hv; ++d) sum += a[d] * b[d];
      delta_[i] = sum;
    }
  }

  int64_t blocks() const { return (x_.queries + kBlock - 1) / kBlock; }

  void pack(const Matrix<E>& m, int64_t h, E* columns, E* rows) const {
    const int64_t width = in_panels(h), depth = padded_depth<E>(h);
    const E* pointers[kBlock];
    for (int64_t i = 0; i < x_.queries; i += kBlock) {
      const int64_t n = std::min(kBlock, x_.queries - i);
      for (int64_t r = 0; r < n; ++r) pointers[r] = m[i + r];
      for (int64_t p = 0; p < n; p += kPanel)
        row_kernels<E>().pack_columns(pointers + p, std::min(kPanel, n - p), h, columns + (i + p) * depth);
      for (int64_t d = 0; d < width; d += kPanel) {
        row_kernels<E>().pack_rows(pointers, n, std::min(kPanel, h - d), rows + i * width + d * kBlock);
        for (int64_t r = 0; r < n; ++r) pointers[r] += kPanel;
      }
    }
  }

  // Rows of keys or values as a left-hand matrix: copied only when h must be filled up.
  Matrix<E> filled(const Matrix<E>& m, int64_t h, int64_t j, int64_t n, int slot) const {
    const int64_t depth = padded_depth<E>(h);
    if (depth == h) return {m[j], m.stride};
    E* rows = elements(slot, kBlock * depth);
    std::fill_n(rows, n * depth, E(0));
    for (int64_t r = 0; r < n; ++r) std::copy_n(m[j + r], h, rows + r * depth);
    return {rows, depth};
  }

  void key_block(int64_t j, int64_t n, float* dk, float* dv) {
    const Matrix<E> key_rows = filled(x_.k, x_.h, j, n, kKeyRows), value_rows = filled(x_.v, x_.hv, j, n, kValueRows);
    const int64_t room = Left<E>::room_for(kBlock, std::max({depth_, v_depth_, kBlock})),
                  room_t = Left<E>::room_for(width_, kBlock);
    float* const wide = scratch(kWide, 4 * room + room_t);
    const Left<E> keys(key_rows.data, key_rows.stride, n, x_.h, wide),
        values(value_rows.data, value_rows.stride, n, x_.hv, wide + room);
    E* k_t = elements(kKT, width_ * kBlock);  // [width, keys]
    std::fill_n(k_t, width_ * kBlock, E(0));
    for (int64_t r = 0; r < n; ++r)
      for (int64_t d = 0; d < x_.h; ++d) k_t[d * kBlock + r] = x_.k[j + r][d];
    const Left<E> keys_t(k_t, kBlock, width_, n, wide + 4 * room);
    for (int64_t i = 0; i < x_.queries; i += kBlock) {
      const int64_t m = std::min(kBlock, x_.queries - i);
      if (view_.last(i + m - 1 + offset(), x_.keys) <= j || view_.first(i + offset()) >= j + n) continue;
      tile(i, m, j, n, keys, values, keys_t, wide + 2 * room, room, dk, dv);
    }
  }

  // space: twice `room`, for the widened probabilities and their gradients.
  void tile(int64_t i, int64_t m, int64_t j, int64_t n, const Left<E>& keys, const Left<E>& values,
            const Left<E>& keys_t, float* space, int64_t room, float* dk, float* dv) {
    const RowKernels<E>& kernel = row_kernels<E>();
    float *scores = scratch(kScores, kBlock * kBlock), *dp = scratch(kDp, kBlock * kBlock);
    E *probs = elements(kProbs, kBlock * kBlock), *ds = elements(kDs, kBlock * kBlock),
      *ds_panel = elements(kDsPanels, kBlock * kPanel);
    const int64_t panels = (m + kPanel - 1) / kPanel;
    for (int64_t p = 0; p < panels; ++p) {
      keys.times(q_t_ + (i + p * kPanel) * depth_, scores + p * kPanel, kBlock, false);
      values.times(grad_t_ + (i + p * kPanel) * v_depth_, dp + p * kPanel, kBlock, false);
    }
    if (rule_.softcap > 0)
      for (int64_t r = 0; r < n; ++r) kernels().tanh_of(panels * kPanel, rule_.into_tanh(), 1.0f, scores + r * kBlock);
    int32_t low[kBlock], high[kBlock];  // the queries that see each key
    for (int64_t r = 0; r < n; ++r) {
      const int64_t key = j + r - offset() - i;
      const int64_t reach = view_.reach(), width = std::abs(view_.window);
      low[r] = static_cast<int32_t>(reach > 0 ? std::clamp<int64_t>(key - reach + 1, 0, m) : 0);
      high[r] = static_cast<int32_t>(width > 0 ? std::clamp<int64_t>(key + width, 0, m) : m);
    }
    const float scale2 = rule_.softcap > 0 ? rule_.scale2() : scale_ * 1.44269504088896341f;
    kernel.softmax_gradient(n, panels * kPanel, low, high, scale2, scores, dp, kBlock, lse2_ + i, delta_ + i, probs, ds,
                            kBlock, rule_.softcap > 0);
    const Left<E> left_probs(probs, kBlock, n, m, space), left_ds(ds, kBlock, n, m, space + room);
    for (int64_t d = 0; d < v_width_; d += kPanel)
      left_probs.times(grad_ + i * v_width_ + d * kBlock, dv + d, v_width_, true);
    for (int64_t d = 0; d < width_; d += kPanel) left_ds.times(q_ + i * width_ + d * kBlock, dk + d, width_, true);
    const E* rows[kBlock];
    for (int64_t r = 0; r < n; ++r) rows[r] = ds + r * kBlock;
    for (int64_t p = 0; p < panels; ++p) {
      kernel.pack_rows(rows, n, kPanel, ds_panel);
      keys_t.times(ds_panel, dq_t_ + (i + p * kPanel) * width_, kPanel, true);
      for (int64_t r = 0; r < n; ++r) rows[r] += kPanel;
    }
  }

  void finish(E* dq, int64_t stride) const {
    float* row = scratch(kScores, std::max(kBlock * kBlock, width_));
    for (int64_t i = 0; i < x_.queries; ++i) {
      const float* column = dq_t_ + i / kPanel * kPanel * width_ + i % kPanel;
      for (int64_t d = 0; d < x_.h; ++d) row[d] = column[d * kPanel];
      row_kernels<E>().narrow(x_.h, row, scale_, dq + i * stride);
    }
  }

  HeadInputs<E> x_;
  View view_;
  Scores rule_;
  float scale_;
  // h filled to panels; to the depth of a product; the same of values; queries filled to panels.
  int64_t width_, depth_, v_width_, v_depth_, padded_;
  E *q_t_, *grad_t_, *q_, *grad_;
  float *dq_t_, *lse2_, *delta_;
};

// out [T, K, H] = scale * sum over the group of partial [N, T, width]
template <class E>
void sum_groups(const float* partial, int64_t tokens, int64_t group, int64_t width, float scale,
                const at::Tensor& out_TKH) {
  const int64_t kv_heads = out_TKH.size(1), h = out_TKH.size(2);
  share(tokens, 64, [&](int64_t begin, int64_t end) {
    float* sum = scratch(2, width);
    for (int64_t t = begin; t < end; ++t)
      for (int64_t g = 0; g < kv_heads; ++g) {
        std::fill_n(sum, h, 0.0f);
        for (int64_t i = 0; i < group; ++i) {
          const float* one = partial + ((g * group + i) * tokens + t) * width;
          for (int64_t d = 0; d < h; ++d) sum[d] += one[d];
        }
        row_kernels<E>().narrow(h, sum, scale, data<E>(out_TKH) + (t * kv_heads + g) * h);
      }
  });
}

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

Triple attention_backward(const at::Tensor& grad_TNH, const at::Tensor& q_TNH, const at::Tensor& k_TKH,
                          const at::Tensor& v_TKH, const at::Tensor& out_TNH, const at::Tensor& lse_NT,
                          const at::Tensor& cu_q, const at::Tensor& cu_k, int64_t max_q, int64_t max_k, double scale,
                          bool causal, int64_t window, double softcap, const OptionalTensor& sinks) {
  if (!same_small_float(q_TNH, k_TKH, v_TKH, grad_TNH, out_TNH))
    return Reference<decltype(attention_backward)>::call("apus::attention_backward", grad_TNH, q_TNH, k_TKH, v_TKH,
                                                         out_TNH, lse_NT, cu_q, cu_k, max_q, max_k, scale, causal,
                                                         window, softcap, sinks);
  const at::Tensor grad = as_heads(grad_TNH), q = as_heads(q_TNH), k = as_heads(k_TKH), v = as_heads(v_TKH),
                   out = as_heads(out_TNH);
  const at::Tensor lse = lse_NT.contiguous();
  const int64_t tokens = q.size(0), heads = q.size(1), h = q.size(2), hv = v.size(2), keys = k.size(0),
                kv_heads = k.size(1), group = heads / kv_heads;
  const int64_t width = in_panels(h), v_width = in_panels(hv);
  const at::Tensor dq = at::empty(q.sizes(), q.options()), dk = at::empty(k.sizes(), k.options()),
                   dv = at::empty(v.sizes(), v.options());
  const at::Tensor partial = at::empty({heads * keys * (width + v_width)}, q.options().dtype(at::kFloat));
  by_type(q, [&](auto e) {
    using E = decltype(e);
    const int32_t *starts_q = data<int32_t>(cu_q), *starts_k = data<int32_t>(cu_k);
    float *dk_partial = data<float>(partial), *dv_partial = dk_partial + heads * keys * width;
    share((cu_q.numel() - 1) * heads, 1, [&](int64_t begin, int64_t end) {
      const Multiplying guard;
      for (int64_t item = begin; item < end; ++item) {
        const int64_t s = item / heads, n = item % heads, fq = starts_q[s], fk = starts_k[s];
        const auto at_q = [&](const at::Tensor& t) {
          return Matrix<E>{data<E>(t) + fq * t.stride(0) + n * t.size(2), t.stride(0)};
        };
        const auto at_k = [&](const at::Tensor& t) {
          return Matrix<E>{data<E>(t) + fk * t.stride(0) + n / group * t.size(2), t.stride(0)};
        };
        const HeadInputs<E> head{at_q(q),
                                 at_k(k),
                                 at_k(v),
                                 at_q(out),
                                 at_q(grad),
                                 data<float>(lse) + n * tokens + fq,
                                 starts_q[s + 1] - fq,
                                 starts_k[s + 1] - fk,
                                 h,
                                 hv};
        HeadGradient<E>(head, {causal, window}, {scale, softcap})
            .run(data<E>(dq) + (fq * heads + n) * h, heads * h, dk_partial + (n * keys + fk) * width,
                 dv_partial + (n * keys + fk) * v_width);
      }
    });
    sum_groups<E>(dk_partial, keys, group, width, static_cast<float>(scale), dk);
    sum_groups<E>(dv_partial, keys, group, v_width, 1.0f, dv);
  });
  return {dq, dk, dv};
}

}  // namespace
}  // namespace apus::cpu

TORCH_LIBRARY_IMPL(apus, CPU, m) {
  m.impl("attention_backward", apus::cpu::attention_backward);
  m.impl("attention_part_backward", apus::cpu::attention_backward);
}
