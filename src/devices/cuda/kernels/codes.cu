// SPDX-License-Identifier: Apache-2.0
// Weights [rows, columns] held as codes of four or eight bits, in the order that devices/cuda/codes.h describes: products with
// up to 32 rows at a time, which tensor cores sum in f32, and rows made plain.

// As devices/cuda/codes.h has it.
struct Codes {
  const uint4* code;
  const void *scale, *zero, *least;  // null: there are none
  float factor, least_factor;        // what scales and leasts are multiplied by
  int rows, columns, stretches, groups, group_shift, wide;
  float book[16];
};

// What a code of four bits stands for: any number; a whole one, counted from book[0] on. Of eight: a whole number; FP8.
constexpr int kBook = 0, kCounted = 1, kSigned = 2, kE4m3 = 3;

template <int kKind>
constexpr int kBits = kKind == kBook || kKind == kCounted ? 4 : 8;
template <int kKind>
constexpr int kPerWord = 32 / kBits<kKind>;
constexpr int kMostWarps = 16;

// Numbers of rows r and r + 8 of a tile, in a group.
struct TwoRows {
  float at[2];
};
__device__ inline TwoRows two_rows(const void* from, long long index, int wide) {
  if (wide) {
    const float* const at = static_cast<const float*>(from) + 2 * index;
    return {{at[0], at[1]}};
  }
  const unsigned both = static_cast<const unsigned*>(from)[index];
  const f16 first{static_cast<unsigned short>(both)}, second{static_cast<unsigned short>(both >> 16)};
  return {{to_float(first), to_float(second)}};
}
__device__ inline long long group_index(const Codes& c, long long tile, int column, int row) {
  return (tile * c.groups + (column >> c.group_shift)) * 8 + row;
}

template <class T>
__device__ inline unsigned twice(float x) {
  return pair(T{}, x, x);
}

// a * b + c, of two numbers each.
#ifndef APUS_SIMULATED_GPU
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
#else
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

// Numbers 2 i and 2 i + 1 of a word, without zero and scale. table: of each byte of two codes its pair, for each lane apart.
template <class T, int kKind>
__device__ inline unsigned number_pair(unsigned word, int i, const unsigned* table, unsigned counted_from) {
  if constexpr (kKind == kBook) return table[(word >> 8 * i & 255) * 32 + threadIdx.x % 32];
  if constexpr (kKind == kCounted)
    return multiply_add(T{}, (word >> 4 * i & 0x000f000fu) | power_bits(T{}), twice<T>(1), counted_from);
  if constexpr (kKind == kSigned) return whole_pair(T{}, word, i);
  if constexpr (kKind == kE4m3) return e4m3_pair(T{}, word, i);
}

// The numbers of a word of codes of x, as they are: two to an unsigned.
template <int kWords, class T>
__device__ inline void read_x(const T* from, bool there, unsigned (&to)[kWords]) {
  if constexpr (kWords == 4) {
    const uint4 all = there ? *reinterpret_cast<const uint4*>(from) : uint4{};
    to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
  } else {
    const uint2 all = there ? *reinterpret_cast<const uint2*>(from) : uint2{};
    to[0] = all.x, to[1] = all.y;
  }
}

// What a warp multiplies: rows of x from `first` to m, with a tile of the weight.
template <class T>
struct Operand {
  const T* x;
  long long x_row;
  int first, m;
};

// A word of both rows of each lane: 32 columns of codes of four bits, 16 of eight, all in one group.
template <class T, int kKind, int kOffsets, int kTiles>
__device__ inline void add_word(const Codes& c, const Operand<T>& o, long long tile, int word_index, unsigned upper,
                                unsigned lower, const unsigned* table, unsigned counted_from, float (&sum)[kTiles][4]) {
  constexpr int kPairs = kPerWord<kKind> / 2;
  const int lane = threadIdx.x % 32, row = lane / 4, first_column = word_index * 4 * kPerWord<kKind>,
            column = first_column + lane % 4 * kPerWord<kKind>;
  const long long group = group_index(c, tile, first_column, row);
  TwoRows scale = two_rows(c.scale, group, c.wide), offset{};
  scale.at[0] *= c.factor, scale.at[1] *= c.factor;
  if constexpr (kOffsets) {
    if (c.zero) {
      const TwoRows zero = two_rows(c.zero, group, c.wide);
      offset.at[0] = zero.at[0] * scale.at[0], offset.at[1] = zero.at[1] * scale.at[1];
    }
    if (c.least) {
      const TwoRows least = two_rows(c.least, group, c.wide);
      offset.at[0] += least.at[0] * c.least_factor, offset.at[1] += least.at[1] * c.least_factor;
    }
  }
  unsigned a[kPairs / 2][4];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    a[i / 2][i % 2 * 2] = number_pair<T, kKind>(upper, i, table, counted_from);
    a[i / 2][i % 2 * 2 + 1] = number_pair<T, kKind>(lower, i, table, counted_from);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int x_row = o.first + t * 8 + row;
    unsigned b[kPairs];
    read_x(o.x + x_row * o.x_row + column, x_row < o.m && column < c.columns, b);
    float product[4] = {}, x_sum[4] = {};
#pragma unroll
    for (int i = 0; i < kPairs / 2; ++i) {
      multiply(T{}, product, a[i], b[2 * i], b[2 * i + 1]);
      if constexpr (kOffsets) {
        const unsigned one = twice<T>(1), ones[4] = {one, one, one, one};
        multiply(T{}, x_sum, ones, b[2 * i], b[2 * i + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[t][i] += scale.at[i / 2] * product[i];
      if constexpr (kOffsets) sum[t][i] -= offset.at[i / 2] * x_sum[i];
    }
  }
}

// y [m, rows] = x W' + bias. A block takes `tiles_here` tiles of 16 rows of the weight and, as gridDim.y counts, 8 kTiles rows
// of x; its warps share out the columns of each tile.
template <class T, int kKind, int kOffsets, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32) product(const __grid_constant__ Codes c, const T* x, long long x_row, const T* bias, T* y, int m,
                                                           int tiles_here) {
  __shared__ unsigned space[kKind == kBook ? 256 * 32 : kMostWarps * kTiles * 128];
  if constexpr (kKind == kBook) {
    for (int i = threadIdx.x; i < 256 * 32; i += blockDim.x) space[i] = pair(T{}, c.book[i / 32 & 15], c.book[i / 512]);
    __syncthreads();
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, splits = blockDim.x / 32 / tiles_here;
  const long long tile = static_cast<long long>(blockIdx.x) * tiles_here + warp % tiles_here;
  const Operand<T> operand{x, x_row, static_cast<int>(blockIdx.y) * kTiles * 8, m};
  const unsigned counted_from = kKind == kCounted ? twice<T>(c.book[0] - power(T{})) : 0;
  float sum[kTiles][4] = {};
  if (tile * 16 < c.rows) {
    const uint4* const code = c.code + tile * c.stretches * 64 + lane;
    int s = warp / tiles_here;
    uint4 next[2] = {};
    if (s < c.stretches) next[0] = code[s * 64], next[1] = code[s * 64 + 32];
    for (; s < c.stretches; s += splits) {
      const uint4 now[2] = {next[0], next[1]};
      const int then = s + splits;
      if (then < c.stretches) next[0] = code[then * 64], next[1] = code[then * 64 + 32];
      const unsigned upper[4] = {now[0].x, now[0].y, now[0].z, now[0].w},
                     lower[4] = {now[1].x, now[1].y, now[1].z, now[1].w};
#pragma unroll
      for (int q = 0; q < 4; ++q)
        add_word<T, kKind, kOffsets, kTiles>(c, operand, tile, s * 4 + q, upper[q], lower[q], space, counted_from, sum);
    }
  }
  // [warp][8 kTiles rows of x][16 rows of the tile]
  float* const part = reinterpret_cast<float*>(space);
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      part[((warp * kTiles + t) * 8 + lane % 4 * 2 + i % 2) * 16 + lane / 4 + i / 2 * 8] = sum[t][i];
  __syncthreads();
  for (int n = threadIdx.x; n < tiles_here * kTiles * 128; n += blockDim.x) {
    const int own = n / 16 % tiles_here, column = n / 16 / tiles_here, x_index = operand.first + column;
    const long long row = (static_cast<long long>(blockIdx.x) * tiles_here + own) * 16 + n % 16;
    if (row >= c.rows || x_index >= m) continue;
    float all = bias ? to_float(bias[row]) : 0.f;
    for (int split = 0; split < splits; ++split)
      all += part[((split * tiles_here + own) * kTiles * 8 + column) * 16 + n % 16];
    set(y[x_index * static_cast<long long>(c.rows) + row], all);
  }
}

__device__ inline float e4m3(unsigned code) {
  return __uint_as_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * __uint_as_float(247u << 23);  // 2^120
}

template <int kKind>
__device__ inline float number(unsigned word, int i, const float* book) {
  if constexpr (kKind == kBook) return book[(word >> 4 * i & 15) * 32 + threadIdx.x % 32];
  if constexpr (kKind == kCounted) return book[0] + (word >> (i % 2 * 4 + i / 2) * 4 & 15);
  if constexpr (kKind == kSigned) return static_cast<signed char>(word >> 8 * i & 255);
  if constexpr (kKind == kE4m3) return e4m3(word >> 8 * i & 255);
}

// book [16][32 lanes]: each lane reads its own.
__device__ inline void fill_book(const Codes& c, float* book) {
  for (int i = threadIdx.x; i < 512; i += blockDim.x) book[i] = c.book[i / 32];
  __syncthreads();
}

// Of a row, what one lane of a stretch holds: four words, to their columns of `to`.
template <class T, int kKind>
__device__ inline void write_plain(const Codes& c, long long row, int stretch, int quarter, const float* book, T* to) {
  constexpr int n = kPerWord<kKind>;
  const long long tile = row / 16;
  const int in_tile = row % 16, half = in_tile / 8;
  const uint4 held = c.code[(tile * c.stretches + stretch) * 64 + half * 32 + in_tile % 8 * 4 + quarter];
  const unsigned words[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int first = (stretch * 4 + q) * 4 * n, column = first + quarter * n;
    if (column >= c.columns) continue;
    const long long group = group_index(c, tile, first, in_tile % 8);
    const float scale = two_rows(c.scale, group, c.wide).at[half] * c.factor;
    const float zero = c.zero ? two_rows(c.zero, group, c.wide).at[half] : 0.f;
    const float least = c.least ? two_rows(c.least, group, c.wide).at[half] * c.least_factor : 0.f;
    constexpr int kPacks = n * sizeof(T) / 8;  // of eight bytes
    union {
      uint2 raw[kPacks];
      T value[n];
    } out;
#pragma unroll
    for (int i = 0; i < n; ++i) set(out.value[i], (number<kKind>(words[q], i, book) - zero) * scale - least);
    if constexpr (kPacks % 2 == 0) {
#pragma unroll
      for (int i = 0; i < kPacks; i += 2)
        reinterpret_cast<uint4*>(to + column)[i / 2] = {out.raw[i].x, out.raw[i].y, out.raw[i + 1].x, out.raw[i + 1].y};
    } else {
      *reinterpret_cast<uint2*>(to + column) = out.raw[0];
    }
  }
}

// Rows from `first` on, a multiple of 16, to y [count, columns]: a block takes 16.
template <class T, int kKind>
__global__ void plain(const __grid_constant__ Codes c, long long first, long long count, T* y) {
  __shared__ float book[512];
  fill_book(c, book);
  for (int n = threadIdx.x; n < c.stretches * 64; n += blockDim.x) {
    const long long row = blockIdx.x * 16ll + n % 64 / 4;
    if (row < count) write_plain<T, kKind>(c, first + row, n / 64, n % 4, book, y + row * c.columns);
  }
}

// The rows of ids, a block each.
template <class T, int kKind>
__global__ void rows_of(const __grid_constant__ Codes c, const long long* id, T* y) {
  __shared__ float book[512];
  fill_book(c, book);
  for (int n = threadIdx.x; n < c.stretches * 4; n += blockDim.x)
    write_plain<T, kKind>(c, id[blockIdx.x], n / 4, n % 4, book, y + static_cast<long long>(blockIdx.x) * c.columns);
}
