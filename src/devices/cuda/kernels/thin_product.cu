// SPDX-License-Identifier: Apache-2.0
// y [rows, out] = x [rows, in] W' + b for a few rows: all that counts is how fast W is read. kShare warps make one column of y
// together, so that there are blocks enough for all multiprocessors; a lane reads kAhead packs of W before it uses them; x, which
// all warps read, is in the nearest cache. `in` is a multiple of a pack.

template <class T, class Y, int kRows, int kShare>
__global__ void __launch_bounds__(256) product(const T* x, const T* weight, const T* bias, Y* y, int in, int out) {
  constexpr int n = Pack<T>::size, kAhead = 8, kStretch = 32 * n * kShare, kColumns = 8 / kShare;
  __shared__ float parts[kRows][8];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, share = warp % kShare;
  const int column = blockIdx.x * kColumns + warp / kShare;
  const T* const row = weight + static_cast<long long>(min(column, out - 1)) * in;
  float sum[kRows] = {};
  for (int begin = (share * 32 + lane) * n; begin < in; begin += kStretch * kAhead) {
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
    sum[r] = sum_of_warp(sum[r]);
    if (lane == 0) parts[r][warp] = sum[r];
  }
  __syncthreads();
  if (threadIdx.x >= kRows * kColumns) return;
  const int r = threadIdx.x / kColumns, own = threadIdx.x % kColumns, place = blockIdx.x * kColumns + own;
  if (place >= out) return;
  float all = bias ? to_float(bias[place]) : 0.f;
#pragma unroll
  for (int s = 0; s < kShare; ++s) all += parts[r][own * kShare + s];
  set(y[static_cast<long long>(r) * out + place], all);
}
