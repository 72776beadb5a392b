// SPDX-License-Identifier: Apache-2.0
// Loops over single rows for the including file's level:
// norms, rotary embedding, the gate of the feed-forward, the optimizer.
#pragma once

#include "devices/cpu/kernels/vec.h"

namespace apus::cpu {
namespace {

// Calls body(j, count) for whole vectors, then once for what is left.
template <class Body>
inline void by_vectors(int64_t n, const Body& body) {
  int64_t j = 0;
  for (; j + kWidth <= n; j += kWidth) body(j, std::integral_constant<bool, true>{});
  if (j < n) body(j, std::integral_constant<bool, false>{});
}
template <bool whole, class E>
inline Floats get(const E* p, int64_t j, int64_t n) {
  if constexpr (whole) return load(p + j);
  return load_some(p + j, n - j);
}
template <bool whole, class E>
inline void set(E* p, int64_t j, int64_t n, Floats v) {
  if constexpr (whole)
    store(p + j, v);
  else
    store_some(p + j, v, n - j);
}

inline float root(float x) { return __builtin_sqrtf(x); }

template <class E>
float inverse_rms(int64_t n, const E* x, float eps) {
  Floats squares{};
  by_vectors(n, [&](int64_t j, auto whole) {
    const Floats v = get<whole>(x, j, n);
    squares += v * v;
  });
  return 1.0f / root(total(squares) / static_cast<float>(n) + eps);
}

template <class E>
void rms_norm(int64_t n, const E* x, const E* delta, E* sum, const E* weight, float eps, E* y) {
  if (delta) {
    by_vectors(n, [&](int64_t j, auto whole) { set<whole>(sum, j, n, get<whole>(x, j, n) + get<whole>(delta, j, n)); });
    x = sum;
  }
  const float inverse = inverse_rms(n, x, eps);
  by_vectors(n, [&](int64_t j, auto whole) {  // rounded before the weight, as HuggingFace does
    set<whole>(y, j, n, rounded_to<E>(get<whole>(x, j, n) * inverse) * get<whole>(weight, j, n));
  });
}

template <class E>
void rms_norm_gradient(int64_t n, const E* x, const E* weight, const E* dy, float eps, const E* extra, E* dx,
                       float* dweight) {
  const float inverse = inverse_rms(n, x, eps);
  Floats dots{};
  by_vectors(
      n, [&](int64_t j, auto whole) { dots += get<whole>(dy, j, n) * get<whole>(weight, j, n) * get<whole>(x, j, n); });
  const float mean = total(dots) * inverse / static_cast<float>(n);
  by_vectors(n, [&](int64_t j, auto whole) {
    const Floats normal = get<whole>(x, j, n) * inverse, grad = get<whole>(dy, j, n);
    if (dweight) set<whole>(dweight, j, n, get<whole>(dweight, j, n) + grad * normal);
    Floats d = (grad * get<whole>(weight, j, n) - normal * mean) * inverse;
    if (extra) d += get<whole>(extra, j, n);
    set<whole>(dx, j, n, d);
  });
}

template <class E>
void swiglu(int64_t n, const E* gate, const E* up, E* y) {
  by_vectors(n, [&](int64_t j, auto whole) {
    const Floats g = get<whole>(gate, j, n);
    set<whole>(y, j, n, rounded_to<E>(g * sigmoid(g)) * get<whole>(up, j, n));
  });
}

template <class E>
void swiglu_gradient(int64_t n, const E* gate, const E* up, const E* dy, E* dgate, E* dup) {
  by_vectors(n, [&](int64_t j, auto whole) {
    const Floats g = get<whole>(gate, j, n), grad = get<whole>(dy, j, n), s = sigmoid(g);
    set<whole>(dup, j, n, grad * g * s);
    set<whole>(dgate, j, n, grad * get<whole>(up, j, n) * s * (1.0f + g * (1.0f - s)));
  });
}

template <class E>
void rope(int64_t h, int64_t r, const E* x, const float* cos, const float* sin, float sign, E* y) {
  by_vectors(r, [&](int64_t j, auto whole) {
    const Floats a = get<whole>(x, j, r), b = get<whole>(x + r, j, r), c = get<whole>(cos, j, r),
                 s = get<whole>(sin, j, r) * sign;
    set<whole>(y, j, r, a * c - b * s);
    set<whole>(y + r, j, r, b * c + a * s);
  });
  std::memmove(y + 2 * r, x + 2 * r, sizeof(E) * (h - 2 * r));
}

inline Floats square_root(Floats v) {
#if defined(__AVX512F__)
  return (Floats)_mm512_sqrt_ps((__m512)v);
#elif defined(__AVX2__)
  return (Floats)_mm256_sqrt_ps((__m256)v);
#elif defined(__ARM_NEON)
  return (Floats)vsqrtq_f32((float32x4_t)v);
#else
  for (int i = 0; i < kWidth; ++i) v[i] = root(v[i]);
  return v;
#endif
}

inline void adamw(int64_t n, float* param, const float* grad, float* m, float* v, const AdamwScalars& s) {
  const float step = s.lr / s.correction1, scale = 1.0f / root(s.correction2), keep = 1.0f - s.lr * s.decay;
  by_vectors(n, [&](int64_t j, auto whole) {
    const Floats g = get<whole>(grad, j, n) * s.grad_scale;
    const Floats mean = get<whole>(m, j, n) * s.beta1 + g * (1.0f - s.beta1);
    const Floats square = get<whole>(v, j, n) * s.beta2 + g * g * (1.0f - s.beta2);
    set<whole>(m, j, n, mean);
    set<whole>(v, j, n, square);
    set<whole>(param, j, n, get<whole>(param, j, n) * keep - mean * step / (square_root(square) * scale + s.eps));
  });
}

template <class E>
double sum_of_squares(int64_t n, const E* x) {
  using Doubles = double __attribute__((vector_size(8 * kWidth)));
  Doubles squares{};
  by_vectors(n, [&](int64_t j, auto whole) {
    const Doubles v = __builtin_convertvector(get<whole>(x, j, n), Doubles);
    squares += v * v;
  });
  double sum = 0;
  for (int i = 0; i < kWidth; ++i) sum += squares[i];
  return sum;
}

}  // namespace
}  // namespace apus::cpu
