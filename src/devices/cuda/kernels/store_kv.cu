// SPDX-License-Identifier: Apache-2.0
// A token's keys and values into its place of the cache: one block a token.

template <class T>
__device__ void copy_token(const T* from, long long head_stride, T* to, int heads, int size) {
  for (int n = threadIdx.x; n < heads * size; n += blockDim.x) to[n] = from[n / size * head_stride + n % size];
}

template <class T>
__global__ void store(const T* k, const T* v, T* k_cache, T* v_cache, const long long* slot, long long k_token,
                      long long k_head, long long v_token, long long v_head, int heads, int k_size, int v_size) {
  const long long token = blockIdx.x, place = slot[token];
  if (place < 0) return;
  copy_token(k + token * k_token, k_head, k_cache + place * heads * k_size, heads, k_size);
  copy_token(v + token * v_token, v_head, v_cache + place * heads * v_size, heads, v_size);
}
