// SPDX-License-Identifier: Apache-2.0
// What every kernel begins with: numbers of two bytes and codes of eight bits, sixteen bytes at a time, sums over threads.
// Standing in front of each kernel's text: there are no headers where kernels are compiled (devices/cuda/kernel.h).
// tests/sim/gpu.h gives the processor what a GPU has built in.

struct bf16 {
  unsigned short bits;
};
struct f16 {
  unsigned short bits;
};

#ifndef APUS_SIMULATED_GPU
__device__ inline float to_float(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ inline unsigned short f16_bits(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
__device__ inline unsigned short bf16_bits(float x) {
  unsigned short y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}

// By a warp: sum [16, 8] += a [16, 16] b [16, 8]. Lane 4 g + t holds of a, in pairs, (g, 2t), (g + 8, 2t), (g, 2t + 8),
// (g + 8, 2t + 8); of b the columns g, rows 2t and 2t + 8; of the sum (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
__device__ inline void multiply(bf16, float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(f16, float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// a * b + c, of two numbers each.
__device__ inline unsigned multiply_add(bf16, unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
__device__ inline unsigned multiply_add(f16, unsigned a, unsigned b, unsigned c) {
  unsigned d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
#endif

__device__ inline float to_float(bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
__device__ inline float to_float(float x) { return x; }

__device__ inline void set(float& to, float x) { to = x; }
__device__ inline void set(bf16& to, float x) { to.bits = bf16_bits(x); }
__device__ inline void set(f16& to, float x) { to.bits = f16_bits(x); }

// Two numbers side by side.
__device__ inline unsigned pair(bf16, float low, float high) {
  return bf16_bits(low) | static_cast<unsigned>(bf16_bits(high)) << 16;
}
__device__ inline unsigned pair(f16, float low, float high) {
  return f16_bits(low) | static_cast<unsigned>(f16_bits(high)) << 16;
}

template <class T>
__device__ inline unsigned twice(float x) {
  return pair(T{}, x, x);
}
#ifdef APUS_SIMULATED_GPU
template <class T>
unsigned multiply_add(T, unsigned a, unsigned b, unsigned c) {
  const auto half = [](unsigned x, int i) { return to_float(T{static_cast<unsigned short>(x >> 16 * i)}); };
  return pair(T{}, half(a, 0) * half(b, 0) + half(c, 0), half(a, 1) * half(b, 1) + half(c, 1));
}
#endif

// Whole numbers of few bits, put below the leading bit of 2^7 (bf16) or 2^10 (f16), are that power plus them.
__device__ inline constexpr unsigned power_bits(bf16) { return 0x43004300u; }
__device__ inline constexpr unsigned power_bits(f16) { return 0x64006400u; }
__device__ inline constexpr float power(bf16) { return 128; }
__device__ inline constexpr float power(f16) { return 1024; }

// The two bytes of bits 16 i and on, each as a whole number with a sign.
__device__ inline unsigned whole_pair(bf16 t, unsigned word, int i) {
  const unsigned bytes = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
  // 128 + the lower seven bits, less 128, or less 256 where the sign is there.
  const unsigned low = (bytes & 0x007f007fu) | power_bits(t), less = (bytes & 0x00800080u) | power_bits(t);
  return multiply_add(t, less, twice<bf16>(-1), low);
}
__device__ inline unsigned whole_pair(f16 t, unsigned word, int i) {
  const unsigned bytes = __byte_perm(word, 0, i ? 0x4342 : 0x4140);
  return multiply_add(t, (bytes ^ 0x00800080u) | power_bits(t), twice<f16>(1), twice<f16>(-1152));
}
// The same of FP8 numbers: exponent and fraction at their places, then the bias of the exponent made good.
__device__ inline unsigned e4m3_pair(bf16 t, unsigned word, int i) {
  const unsigned bytes = __byte_perm(word, 0, i ? 0x3424 : 0x1404);
  return multiply_add(t, (bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 4, 0x7b807b80u, 0x80008000u);  // 2^120
}
__device__ inline unsigned e4m3_pair(f16 t, unsigned word, int i) {
  const unsigned bytes = __byte_perm(word, 0, i ? 0x3424 : 0x1404);
  return multiply_add(t, (bytes & 0x80008000u) | (bytes & 0x7f007f00u) >> 1, 0x5c005c00u, 0x80008000u);  // 2^8
}

__device__ inline float e4m3(unsigned code) {
  return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * __uint_as_float(247u << 23);  // 2^120
}

// x as T holds it.
template <class T>
__device__ inline float rounded(float x) {
  T held;
  set(held, x);
  return to_float(held);
}

// As many numbers as sixteen bytes hold, read and written at once: addresses are multiples of sixteen.
template <class T>
struct Pack {
  static constexpr int size = 16 / sizeof(T);
  float at[size];

  __device__ void read(const T* from) { take(*reinterpret_cast<const uint4*>(from)); }
  __device__ void take(uint4 raw) {
    union {
      uint4 raw;
      T value[size];
    } held;
    held.raw = raw;
#pragma unroll
    for (int i = 0; i < size; ++i) at[i] = to_float(held.value[i]);
  }
  __device__ void write(T* to) const {
    union {
      uint4 raw;
      T value[size];
    } held;
#pragma unroll
    for (int i = 0; i < size; ++i) set(held.value[i], at[i]);
    *reinterpret_cast<uint4*>(to) = held.raw;
  }
};

__device__ inline float sum_of_warp(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}

// Sums over the threads of a row of the block (blockDim.x: 32, or a multiple with blockDim.y 1); all of them get it.
__device__ inline float sum_of_row(float x) {
  x = sum_of_warp(x);
  if (blockDim.x == 32) return x;
  __shared__ float parts[32];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % 32 == 0) parts[warp] = x;
  __syncthreads();
  return sum_of_warp(threadIdx.x % 32 < warps ? parts[threadIdx.x % 32] : 0.f);
}
