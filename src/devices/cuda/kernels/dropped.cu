// SPDX-License-Identifier: Apache-2.0
// x with the elements zeroed whose 16 hashed bits stay below a threshold; two elements share a hash, of their number plus the
// seed. The bits are those of tensor/noise.cpp.
__device__ inline unsigned hash(unsigned x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <class T>
__global__ void dropped(const T* x, T* y, unsigned seed, unsigned threshold, long long count) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; 2 * i < count; i += stride) {
    const unsigned h = hash(static_cast<unsigned>(i) + seed);
    set(y[2 * i], (h & 0xffff) >= threshold ? to_float(x[2 * i]) : 0.f);
    if (2 * i + 1 < count) set(y[2 * i + 1], (h >> 16) >= threshold ? to_float(x[2 * i + 1]) : 0.f);
  }
}
