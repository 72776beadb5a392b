// SPDX-License-Identifier: Apache-2.0
// A simulated GPU: what CUDA has built in, for kernels that are compiled as plain C++, and blocks of threads that run
// one after another on the thread that launches them. Each thread of a block has a stack of its own and runs until it
// waits for others. The address sanitizer sees every access; the thread sanitizer takes each for a thread of its own
// that only barriers put in order, so that a missing one is a race (shuffles order nothing, as on a GPU). Blocks follow
// one another. Include kernels in a namespace of their own inside of apus::kernels.
#pragma once

#include <math.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "base/half.h"

#define APUS_SIMULATED_GPU
#define __global__
#define __device__
#define __noinline__
#define __shared__ static  // one block runs at a time; each finds nothing but NaN there
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace apus::gpu {

struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

// Runs `kernel` once for each thread of each block. Throws std::runtime_error where threads wait for others that never
// come or that wait elsewhere, and for extents that no GPU takes.
void launch(Extent grid, Extent block, const std::function<void()>& kernel);

extern const bool kSeesRaces;  // the thread sanitizer looks on: everything takes ten times as long

struct Site {
  const char* call;  // "__syncthreads"
  const char* file;
  int line;
};
void sync_block(Site site);
void sync_warp(unsigned mask, Site site);
// The warp's lanes show each other `size` bytes: what lane 0 showed, lane 1 behind it. Until the warp's next call.
const void* exchange(unsigned mask, const void* mine, size_t size, Site site);

}  // namespace apus::gpu

namespace apus::kernels {

extern gpu::Extent gridDim, blockDim, blockIdx, threadIdx;

#define APUS_CALLED_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(APUS_CALLED_AT) { gpu::sync_block({"__syncthreads", file, line}); }
inline void __syncwarp(unsigned mask = ~0u, APUS_CALLED_AT) { gpu::sync_warp(mask, {"__syncwarp", file, line}); }

inline int lane_of_thread() {
  return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32);
}
// What lane `from` holds; of no lane: one's own.
template <class T>
T of_lane(unsigned mask, T x, int from, gpu::Site site) {
  const auto* all = static_cast<const T*>(gpu::exchange(mask, &x, sizeof x, site));
  return from >= 0 && from < 32 ? all[from] : x;
}
template <class T>
T __shfl_sync(unsigned mask, T x, int from, APUS_CALLED_AT) {
  return of_lane(mask, x, from % 32, {"__shfl_sync", file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int other, APUS_CALLED_AT) {
  return of_lane(mask, x, lane_of_thread() ^ other, {"__shfl_xor_sync", file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned by, APUS_CALLED_AT) {
  return of_lane(mask, x, lane_of_thread() + static_cast<int>(by), {"__shfl_down_sync", file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, unsigned by, APUS_CALLED_AT) {
  return of_lane(mask, x, lane_of_thread() - static_cast<int>(by), {"__shfl_up_sync", file, line});
}
inline unsigned ballot(unsigned mask, int truth, gpu::Site site) {
  const auto* all = static_cast<const int*>(gpu::exchange(mask, &truth, sizeof truth, site));
  unsigned bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= (all[lane] != 0 ? 1u : 0u) << lane;
  return bits;
}
inline unsigned __ballot_sync(unsigned mask, int truth, APUS_CALLED_AT) {
  return ballot(mask, truth, {"__ballot_sync", file, line});
}
inline int __any_sync(unsigned mask, int truth, APUS_CALLED_AT) {
  return ballot(mask, truth, {"__any_sync", file, line}) != 0;
}
inline int __all_sync(unsigned mask, int truth, APUS_CALLED_AT) {
  return ballot(mask, truth, {"__all_sync", file, line}) == ~0u;
}
#undef APUS_CALLED_AT

template <class T>
T atomicAdd(T* to, T x) {
  return std::atomic_ref<T>(*to).fetch_add(x, std::memory_order_relaxed);
}

struct [[gnu::may_alias]] alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct [[gnu::may_alias]] alignas(16) int4 {
  int x, y, z, w;
};
struct [[gnu::may_alias]] alignas(16) float4 {
  float x, y, z, w;
};
struct [[gnu::may_alias]] alignas(8) uint2 {
  unsigned x, y;
};
struct [[gnu::may_alias]] alignas(8) float2 {
  float x, y;
};

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
T __ldg(const T* from) {
  return *from;
}
inline int __clz(unsigned x) { return std::countl_zero(x); }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(unsigned x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline float __expf(float x) { return expf(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
// Four of eight bytes, which the last four digits of `which` name.
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned which) {
  const uint64_t all = low | static_cast<uint64_t>(high) << 32;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<unsigned>(all >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
  return out;
}

// A GPU's NaN of two bytes is one and the same.
inline unsigned short f16_bits(float x) { return x != x ? 0x7fff : float_to_f16(x); }
inline unsigned short bf16_bits(float x) { return x != x ? 0x7fff : float_to_bf16(x); }
inline float to_float(struct f16 x);

#include "devices/cuda/kernels/prelude.cuh"

inline float to_float(f16 x) { return f16_to_float(x.bits); }

// By a warp: sum [16, 8] += a [16, 16] b [16, 8]; prelude.cuh says which lane holds what.
template <class T>
void multiply(T, float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  struct Share {
    T a[4][2], b[2][2];
  };
  const unsigned raw[6] = {a[0], a[1], a[2], a[3], b0, b1};
  Share own;
  static_assert(sizeof own == sizeof raw);
  __builtin_memcpy(&own, raw, sizeof own);
  const auto* all = static_cast<const Share*>(gpu::exchange(~0u, &own, sizeof own, {"mma.sync", file, line}));
  const int g = lane_of_thread() / 4, t = lane_of_thread() % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i / 2 * 8, column = 2 * t + i % 2;
    double dot = 0;
    for (int k = 0; k < 16; ++k) {
      const T left = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2][k % 2];
      const T right = all[column * 4 + k % 8 / 2].b[k / 8][k % 2];
      dot += static_cast<double>(to_float(left)) * to_float(right);
    }
    sum[i] = static_cast<float>(sum[i] + dot);
  }
}

}  // namespace apus::kernels
