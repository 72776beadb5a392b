// SPDX-License-Identifier: Apache-2.0
// Element i of a head turns with element R + i by its token's angle i; what stands behind 2R passes. One thread a pair or an
// element that passes.
struct Heads {
  long long token_stride, head_stride;  // of the source; the result lies without gaps
  int heads;
};

template <class T>
__device__ void turn(const T* x, T* y, Heads of, long long token, int head, int i, int size, int r, const float* cos,
                     const float* sin, float sign) {
  const T* const from = x + token * of.token_stride + head * of.head_stride;
  T* const to = y + (token * of.heads + head) * size;
  if (i >= r) {
    to[i + r] = from[i + r];
    return;
  }
  const float a = to_float(from[i]), b = to_float(from[i + r]), c = cos[token * r + i], s = sign * sin[token * r + i];
  set(to[i], a * c - b * s);
  set(to[i + r], b * c + a * s);
}

template <class T>
__global__ void forward(const T* q, const T* k, T* turned_q, T* turned_k, Heads q_heads, Heads k_heads, const float* cos,
                        const float* sin, long long tokens, int size, int r, float sign) {
  const int each = size - r, all = (q_heads.heads + k_heads.heads) * each;
  const long long token = blockIdx.x;
  for (int n = threadIdx.x; n < all; n += blockDim.x) {
    const int head = n / each, i = n % each;
    if (head < q_heads.heads)
      turn(q, turned_q, q_heads, token, head, i, size, r, cos, sin, sign);
    else
      turn(k, turned_k, k_heads, token, head - q_heads.heads, i, size, r, cos, sin, sign);
  }
}
