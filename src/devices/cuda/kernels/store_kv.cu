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

__device__ inline unsigned char to_e4m3(float x) {
  const float size = fabsf(x);
  unsigned code = static_cast<unsigned>(rintf(size * 512));  // below 2^-6 steps of 2^-9
  if (size >= 0.015625f) {
    const unsigned bits = __float_as_uint(size);
    code = ((bits + 0x7ffffu + (bits >> 20 & 1)) >> 20) - (120 << 3);
  }
  return static_cast<unsigned char>((code < 126u ? code : 126u) | (x < 0 ? 128u : 0u));
}

// Heads in codes of eight bits, whole numbers or E4M3 ones, and the f32 that they are multiplied by behind them: a warp a head.
template <class T, bool kWhole>
__device__ void code_token(const T* from, long long head_stride, char* to, int heads, int size) {
  const int lane = threadIdx.x % 32;
  for (int head = threadIdx.x / 32; head < heads; head += blockDim.x / 32) {
    const T* const x = from + head * head_stride;
    char* const row = to + head * (size + 4);
    float most = 0;
    for (int i = lane; i < size; i += 32) most = fmaxf(most, fabsf(to_float(x[i])));
#pragma unroll
    for (int step = 16; step > 0; step /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    const float limit = kWhole ? 127.f : 448.f, scale = most / limit, inverse = scale > 0 ? 1 / scale : 0.f;
    for (int i = lane; i < size; i += 32) {
      const float number = fminf(fmaxf(to_float(x[i]) * inverse, -limit), limit);
      row[i] = kWhole ? static_cast<char>(static_cast<signed char>(rintf(number))) : static_cast<char>(to_e4m3(number));
    }
    if (lane == 0) *reinterpret_cast<float*>(row + size) = scale;
  }
}

template <class T, bool kWhole>
__global__ void store_codes(const T* k, const T* v, char* k_cache, char* v_cache, const long long* slot,
                            long long k_token, long long k_head, long long v_token, long long v_head, int heads,
                            int k_size, int v_size) {
  const long long token = blockIdx.x, place = slot[token];
  if (place < 0) return;
  code_token<T, kWhole>(k + token * k_token, k_head, k_cache + place * heads * (k_size + 4), heads, k_size);
  if (v_cache != k_cache)
    code_token<T, kWhole>(v + token * v_token, v_head, v_cache + place * heads * (v_size + 4), heads, v_size);
}
