// SPDX-License-Identifier: Apache-2.0
// The softmax blocks of attention, forward and gradient, and the statistics of a row of logits,
// for the including file's level.
#pragma once

#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {
namespace {

// {first + 0, first + 1, ...} as floats: column numbers to compare with bounds.
inline Floats columns_from(int64_t first) {
  Floats v;
  for (int i = 0; i < kWidth; ++i) v[i] = static_cast<float>(first + i);
  return v;
}

template <class E>
void softmax_block(int64_t rows, int64_t columns, const int32_t* low, const int32_t* high, float scale2, float* s,
                   int64_t lds, float* maximum, float* sum, float* o, int64_t ldo, int64_t h, E* p, int64_t ldp) {
  const Floats numbers = columns_from(0);
  for (int64_t i = 0; i < rows; ++i) {
    float* row = s + i * lds;
    E* out = p + i * ldp;
    Floats top = splat(-kInfinity);
    if (low && (low[i] > 0 || high[i] < columns)) {
      const Floats from = splat(static_cast<float>(low[i])), to = splat(static_cast<float>(high[i]));
      for (int64_t j = 0; j < columns; j += kWidth) {
        const Floats at = numbers + static_cast<float>(j);
        const Floats x = (at >= from) & (at < to) ? load(row + j) : splat(-kInfinity);
        store(row + j, x);
        top = vmax(top, x);
      }
    } else {
      for (int64_t j = 0; j < columns; j += kWidth) top = vmax(top, load(row + j));
    }
    const float before = maximum[i], now = larger(before, largest(top) * scale2);
    if (now == -kInfinity) {  // nothing seen yet
      for (int64_t j = 0; j < columns; j += kWidth) store(out + j, Floats{});
      continue;
    }
    Floats added{};
    for (int64_t j = 0; j < columns; j += kWidth) {
      const Floats e = exp2_of(load(row + j) * scale2 - now);
      added += e;
      store(out + j, e);
    }
    if (now != before) {
      const float shrink = exp2_of(splat(before - now))[0];
      sum[i] *= shrink;
      for (int64_t j = 0; j < h; j += kWidth) store(o + i * ldo + j, load(o + i * ldo + j) * shrink);
      maximum[i] = now;
    }
    sum[i] += total(added);
  }
}

template <class E, bool kBent>
void softmax_gradient_rows(int64_t rows, int64_t columns, const int32_t* low, const int32_t* high, float scale2,
                           const float* s, const float* dp, int64_t lds, const float* lse2, const float* delta, E* p,
                           E* ds, int64_t ldp) {
  const Floats numbers = columns_from(0);
  for (int64_t i = 0; i < rows; ++i) {
    const bool all = !low || (low[i] <= 0 && high[i] >= columns);
    const Floats from = splat(all ? 0.0f : static_cast<float>(low[i])),
                 to = splat(all ? 0.0f : static_cast<float>(high[i]));
    for (int64_t j = 0; j < columns; j += kWidth) {
      Floats e = exp2_of(load(s + i * lds + j) * scale2 - load(lse2 + j));
      if (!all) {
        const Floats at = numbers + static_cast<float>(j);
        e = (at >= from) & (at < to) ? e : Floats{};
      }
      store(p + i * ldp + j, e);
      Floats d = e * (load(dp + i * lds + j) - load(delta + j));
      if constexpr (kBent) {
        const Floats t = load(s + i * lds + j);
        d *= 1.0f - t * t;
      }
      store(ds + i * ldp + j, d);
    }
  }
}

template <class E>
void softmax_gradient(int64_t rows, int64_t columns, const int32_t* low, const int32_t* high, float scale2,
                      const float* s, const float* dp, int64_t lds, const float* lse2, const float* delta, E* p, E* ds,
                      int64_t ldp, bool bent) {
  const auto run = bent ? softmax_gradient_rows<E, true> : softmax_gradient_rows<E, false>;
  run(rows, columns, low, high, scale2, s, dp, lds, lse2, delta, p, ds, ldp);
}

inline void tanh_of(int64_t n, float before, float after, float* x) {
  const auto bent = [&](Floats v) { return after - 2.0f * after / (exp_of(v * (2.0f * before)) + 1.0f); };
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) store(x + j, bent(load(x + j)));
  if (j < n) store_some(x + j, bent(load_some(x + j, n - j)), n - j);
}

// Natural base. sum = sum of exp(x - max), sum_x = sum of x, sum_px = sum of exp(x - max) * x,
// each with x already scaled.
inline void row_statistics(int64_t n, const float* x, float scale, RowStatistics* out) {
  Floats top = splat(-kInfinity);
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) top = vmax(top, load(x + j));
  float best = largest(top);
  for (; j < n; ++j) best = x[j] > best ? x[j] : best;
  out->best = 0;
  for (int64_t i = 0; i < n; ++i)
    if (x[i] == best) {
      out->best = i;
      break;
    }
  const float shift = best * scale;
  Floats sum{}, sum_x{}, sum_px{};
  for (j = 0; j < n; j += kWidth) {
    const int64_t left = n - j;
    const Floats v = (left >= kWidth ? load(x + j) : load_some(x + j, left)) * scale;
    Floats e = exp_of(v - shift);
    if (left < kWidth) e = columns_from(0) < static_cast<float>(left) ? e : Floats{};
    sum += e, sum_x += v, sum_px += e * v;
  }
  *out = {shift, total(sum), total(sum_x), total(sum_px), out->best};
}

template <class E>
void logit_gradient(int64_t n, const float* x, const LogitGradient& g, E* out) {
  const auto gradient = [&](Floats v) {
    const Floats log_p = v * g.scale - g.lse;
    return exp_of(log_p) * (log_p * g.by_log_p + g.by_p) + g.constant;
  };
  const auto bent = [&](Floats v) {
    const Floats t = v * g.by_cap;
    return gradient(v) * (1.0f - t * t);
  };
  const auto run = [&](const auto& of) {
    int64_t j = 0;
    for (; j + kWidth <= n; j += kWidth) store(out + j, of(load(x + j)));
    if (j < n) store_some(out + j, of(load_some(x + j, n - j)), n - j);
  };
  g.by_cap > 0 ? run(bent) : run(gradient);
}

}  // namespace
}  // namespace apus::cpu
