// SPDX-License-Identifier: Apache-2.0
// y [rows, out] = x [rows, in] W' + b for a few rows: all that counts is how fast W is read. A warp makes one column of y, and
// reads kAhead packs of W a lane before it uses them; x, which all warps read, is in the nearest cache. `in` is a multiple of a
// pack.

template <class T, class Y, int kRows>
__global__ void __launch_bounds__(256) product(const T* x, const T* weight, const T* bias, Y* y, int in, int out) {
  constexpr int n = Pack<T>::size, kAhead = 8, kStretch = 32 * n;
  const int column = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (column >= out) return;
  const T* const row = weight + static_cast<long long>(column) * in;
  float sum[kRows] = {};
  for (int begin = lane * n; begin < in; begin += kStretch * kAhead) {
    uint4 raw[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (begin + u * kStretch < in) raw[u] = *reinterpret_cast<const uint4*>(row + begin + u * kStretch);
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int i = begin + u * kStretch;
      if (i >= in) continue;
      Pack<T> w;
      w.take(raw[u]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Pack<T> a;
        a.read(x + static_cast<long long>(r) * in + i);
#pragma unroll
        for (int j = 0; j < n; ++j) sum[r] += w.at[j] * a.at[j];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float all = sum_of_warp(sum[r]);
    if (lane == 0) set(y[static_cast<long long>(r) * out + column], all + (bias ? to_float(bias[column]) : 0.f));
  }
}
