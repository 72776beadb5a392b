// SPDX-License-Identifier: Apache-2.0
// What every kernel begins with: numbers of two bytes, sixteen bytes at a time, sums over threads. Standing in front of each
// kernel's text: there are no headers where kernels are compiled (devices/cuda/kernel.h). tests/sim/gpu.h gives the processor
// what a GPU has built in.

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
