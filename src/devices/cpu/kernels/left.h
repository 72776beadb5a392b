// SPDX-License-Identifier: Apache-2.0
// The left-hand rows of products with several panels. Where products of bf16 are computed in f32, converting took a
// fifth of the time: here the rows are widened once for all panels, and each panel once for all rows. The additions are
// the same ones in the same order as RowKernels<E>::multiply's,
// so neither a result nor its independence of the batch changes.
#pragma once

#include <algorithm>

#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/parallel.h"

namespace apus::cpu {

template <class E>
class Left {
 public:
  // a [m][k], rows lda apart, readable and finite up to padded_depth(k).
  // space: room_for() floats, of this object alone.
  Left(const E* a, int64_t lda, int64_t m, int64_t k, float* space) : a_(a), lda_(lda), m_(m), k_(k), wide_(space) {
    if (!widens(m)) return;
    const int64_t depth = padded_depth<E>(k);
    for (int64_t i = 0; i < m; ++i) {
      // Rows of large matrices lie pages apart, which the hardware does not foresee.
      for (int64_t j = 0; i + kAhead < m && j < depth; j += 64 / sizeof(E))
        __builtin_prefetch(a + (i + kAhead) * lda + j);
      row_kernels<E>().widen(depth, a + i * lda, wide_ + i * stride(k));
    }
  }
  static int64_t room_for(int64_t m, int64_t k) { return widens(m) ? m * stride(k) + kStretch * kPanel : 0; }

  // c[m][32] = (add ? c : 0) + a * panel; next: as for multiply.
  void times(const E* panel, float* c, int64_t ldc, bool add, const E* next = nullptr) const {
    if (!widens(m_)) return row_kernels<E>().multiply(m_, k_, a_, lda_, panel, c, ldc, add, next);
    const int64_t depth = padded_depth<E>(k_);
    float* const wide_panel = wide_ + m_ * stride(k_);
    for (int64_t d = 0; d < depth; d += kStretch) {
      const int64_t n = std::min(kStretch, depth - d);
      row_kernels<E>().widen_panel(n, panel + d * kPanel, wide_panel);
      kernels().f32.multiply(m_, n, wide_ + d, stride(k_), wide_panel, c, ldc, add || d > 0, nullptr);
    }
  }

 private:
  // Elements of k at a time: a widened panel is then 16 KB, which the first-level cache holds beside some rows.
  static constexpr int64_t kStretch = 128;
  static constexpr int64_t kRepays = 24;  // rows
  static constexpr int64_t kAhead = 4;    // rows
  static bool widens(int64_t m) { return m >= kRepays && row_kernels<E>().widen_panel; }
  // More than the depth, so that rows fall into different sets of the cache.
  static int64_t stride(int64_t k) { return padded_depth<E>(k) + 16; }

  const E* a_;
  int64_t lda_, m_, k_;
  float* wide_;
};

}  // namespace apus::cpu
