// SPDX-License-Identifier: Apache-2.0
// The squares of a tensor's numbers: each block's sum, in double.
template <class T>
__global__ void sums(const T* x, double* sum, long long count) {
  double own = 0;
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const float a = to_float(x[i]);
    own += static_cast<double>(a) * a;
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) own += __shfl_xor_sync(0xffffffffu, own, lane);
  __shared__ double parts[32];
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < blockDim.x / 32; ++warp) own += parts[warp];
  sum[blockIdx.x] = own;
}
