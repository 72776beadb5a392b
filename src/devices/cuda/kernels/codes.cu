// SPDX-License-Identifier: Apache-2.0
// Weights [rows, columns] held as codes of four or eight bits, in the order that devices/cuda/codes.h describes: products with
// up to 32 rows at a time, which tensor cores sum in f32, and rows made plain. Several weights that lie one below the other
// (experts) are multiplied together, each by its own rows.

// As devices/cuda/codes.h has it.
struct Codes {
  const uint4* code;
  const void *scale, *zero, *least;  // null: there are none; zeros or leasts, not both
  float factor, least_factor;        // what scales and leasts are multiplied by
  int rows, columns, stretches, groups, word_shift, wide;
  float book[16];
};

// What a code of four bits stands for: any number; a whole one, counted from book[0] on. Of eight: a whole number; FP8.
constexpr int kBook = 0, kCounted = 1, kSigned = 2, kE4m3 = 3;

template <int kKind>
constexpr int kBits = kKind == kBook || kKind == kCounted ? 4 : 8;
template <int kKind>
constexpr int kPerWord = 32 / kBits<kKind>;
constexpr int kMostWarps = 8;

// Numbers of rows r and r + 8 of a tile, in a group.
struct TwoRows {
  float at[2];
};
__device__ inline TwoRows two_halves(unsigned both) {
  const f16 first{static_cast<unsigned short>(both)}, second{static_cast<unsigned short>(both >> 16)};
  return {{to_float(first), to_float(second)}};
}
__device__ inline TwoRows two_rows(const void* from, long long index, bool wide) {
  if (wide) {
    const float2 both = static_cast<const float2*>(from)[index];
    return {{both.x, both.y}};
  }
  return two_halves(static_cast<const unsigned*>(from)[index]);
}
// Of a row of a tile: where its numbers for a word of each stretch lie. `word` counts on from stretch to stretch.
__device__ inline long long numbers_of_row(const Codes& c, long long tile, int row) { return tile * c.groups * 8 + row; }
__device__ inline int numbers_of_word(const Codes& c, int word) { return (word >> c.word_shift) * 8; }

// What is read once, past the nearest cache, and not later than where it stands.
#ifndef APUS_SIMULATED_GPU
__device__ inline uint4 read_once(const uint4* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}
// A table in shared memory, by the offset in bytes: one multiplication and addition makes the address.
struct Table {
  unsigned address;
  __device__ explicit Table(const void* from) : address(static_cast<unsigned>(__cvta_generic_to_shared(from))) {}
  __device__ unsigned at(unsigned index, unsigned size) const {
    unsigned x;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(index * size + address));
    return x;
  }
};
#else
struct Table {
  const char* address;
  explicit Table(const void* from) : address(static_cast<const char*>(from)) {}
  unsigned at(unsigned index, unsigned size) const { return *reinterpret_cast<const unsigned*>(address + index * size); }
};
inline uint4 read_once(const uint4* from) { return *from; }
#endif

// Numbers 2 i and 2 i + 1 of a word, without zero and scale. table: of each byte of two codes its pair, for each lane apart,
// 128 bytes from one to the next; this lane's.
template <class T, int kKind>
__device__ inline unsigned number_pair(unsigned word, int i, Table table, unsigned counted_from) {
  if constexpr (kKind == kBook) return table.at(__byte_perm(word, 0, 0x4440 + i), 128);
  if constexpr (kKind == kCounted)
    return multiply_add(T{}, (word >> 4 * i & 0x000f000fu) | power_bits(T{}), twice<T>(1), counted_from);
  if constexpr (kKind == kSigned) return whole_pair(T{}, word, i);
  if constexpr (kKind == kE4m3) return e4m3_pair(T{}, word, i);
}

// As many numbers of x as a word has codes, two to an unsigned.
template <class T>
__device__ inline void read_x(const T* from, unsigned (&to)[4]) {
  const uint4 all = *reinterpret_cast<const uint4*>(from);
  to[0] = all.x, to[1] = all.y, to[2] = all.z, to[3] = all.w;
}
template <class T>
__device__ inline void read_x(const T* from, unsigned (&to)[2]) {
  const uint2 all = *reinterpret_cast<const uint2*>(from);
  to[0] = all.x, to[1] = all.y;
}

// What kernels are made for: weights with zeros or leasts; numbers of groups in f32, whose groups are longer than a stretch.
constexpr int kOffsets = 1, kWide = 2;

// Numbers of the groups of a stretch's four words, as they are read: two f16 a word, or two f32.
template <int kScales>
struct GroupNumbers {
  unsigned raw[4];

  __device__ void read(const void* from, const Codes& c, int stretch) {
    if constexpr (kScales & kWide) {
      const uint2 both = static_cast<const uint2*>(from)[numbers_of_word(c, stretch * 4)];
      raw[0] = both.x, raw[1] = both.y;
    } else {
#pragma unroll
      for (int q = 0; q < 4; ++q) raw[q] = static_cast<const unsigned*>(from)[numbers_of_word(c, stretch * 4 + q)];
    }
  }
  __device__ TwoRows of_word(int q) const {
    if constexpr (kScales & kWide) return {{__uint_as_float(raw[0]), __uint_as_float(raw[1])}};
    return two_halves(raw[q]);
  }
};

// What a lane reads of a stretch.
template <int kScales>
struct Stretch {
  uint4 code[2];  // of both rows
  GroupNumbers<kScales> scale, offset;
};

// A warp's part of a tile.
template <class T, int kKind, int kScales, int kTiles>
struct Part {
  static constexpr int kPairs = kPerWord<kKind> / 2;
  const uint4* code;
  const void *scale, *offset;  // of this lane's rows
  bool zeros;                  // offsets are zeros, which are multiplied by scales; otherwise leasts
  float least_factor;          // by what scales are still to be multiplied with
  const T* x[kTiles];          // this lane's row, the columns of its first word
  Table table;
  unsigned counted_from;
  float sum[kTiles][4];

  __device__ Part(const Codes& c, long long tile, const T* from, long long x_row, int first, int m, const void* shared)
      : table(static_cast<const char*>(shared) + threadIdx.x % 32 * 4) {
    const int lane = threadIdx.x % 32;
    const long long at = numbers_of_row(c, tile, lane / 4) * (kScales & kWide ? 8 : 4);
    code = c.code + tile * c.stretches * 64 + lane;
    scale = static_cast<const char*>(c.scale) + at;
    zeros = c.zero;
    if constexpr (kScales & kOffsets) offset = static_cast<const char*>(zeros ? c.zero : c.least) + at;
    least_factor = c.least_factor / c.factor;
    counted_from = kKind == kCounted ? twice<T>(c.book[0] - power(T{})) : 0;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      x[t] = from + min(first + t * 8 + lane / 4, m - 1) * x_row + lane % 4 * kPerWord<kKind>;
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[t][i] = 0;
    }
  }

  __device__ void read(const Codes& c, int stretch, Stretch<kScales>& to) const {
    to.code[0] = read_once(code + stretch * 64), to.code[1] = read_once(code + stretch * 64 + 32);
    to.scale.read(scale, c, stretch);
    if constexpr (kScales & kOffsets) to.offset.read(offset, c, stretch);
  }

  __device__ void add(int stretch, const Stretch<kScales>& s) {
    const unsigned upper[4] = {s.code[0].x, s.code[0].y, s.code[0].z, s.code[0].w},
                   lower[4] = {s.code[1].x, s.code[1].y, s.code[1].z, s.code[1].w};
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      unsigned a[kPairs / 2][4];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        a[i / 2][i % 2 * 2] = number_pair<T, kKind>(upper[q], i, table, counted_from);
        a[i / 2][i % 2 * 2 + 1] = number_pair<T, kKind>(lower[q], i, table, counted_from);
      }
      const TwoRows scales = s.scale.of_word(q);
      TwoRows offsets{};
      if constexpr (kScales & kOffsets) {
        offsets = s.offset.of_word(q);
        offsets.at[0] *= zeros ? scales.at[0] : least_factor, offsets.at[1] *= zeros ? scales.at[1] : least_factor;
      }
#pragma unroll
      for (int t = 0; t < kTiles; ++t)
        add_product(a, x[t] + (stretch * 4 + q) * 4 * kPerWord<kKind>, scales, offsets, sum[t]);
      if constexpr (kKind == kBook) __syncwarp();  // no look-ups for later words before: they would take too many registers
    }
  }

  // A word: 32 columns of codes of four bits, 16 of eight, all in one group.
  __device__ void add_product(const unsigned (&a)[kPairs / 2][4], const T* from, TwoRows scales, TwoRows offsets,
                              float (&to)[4]) const {
    unsigned b[kPairs];
    read_x(from, b);
    float product[4] = {}, x_sum[4] = {};
#pragma unroll
    for (int i = 0; i < kPairs / 2; ++i) {
      multiply(T{}, product, a[i], b[2 * i], b[2 * i + 1]);
      if constexpr (kScales & kOffsets) {
        const unsigned one = twice<T>(1), ones[4] = {one, one, one, one};
        multiply(T{}, x_sum, ones, b[2 * i], b[2 * i + 1]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      to[i] += scales.at[i / 2] * product[i];
      if constexpr (kScales & kOffsets) to[i] -= offsets.at[i / 2] * x_sum[i];
    }
  }
};

// Each pair of a book's numbers, for each lane. Neighbours begin at other places of a row, which lie in other banks.
template <class T>
__device__ inline void fill_table(const Codes& c, uint4* table) {
  for (int byte = threadIdx.x; byte < 256; byte += blockDim.x) {
    const unsigned both = pair(T{}, c.book[byte & 15], c.book[byte / 16]);
#pragma unroll
    for (int i = 0; i < 8; ++i) table[byte * 8 + (byte + i) % 8] = {both, both, both, both};
  }
  __syncthreads();
}

// Which products a block makes.
struct Block {
  long long first_tile;  // of the weight, of this block
  int tiles_left;        // of the matrix, from there on
  int tiles_here;        // that the block takes
  int first, end;        // rows of x that are its own: 8 kTiles from `first` on, those below `end`
  int row;               // of the matrix, of its first tile
  int rows;              // of the matrix: columns of y
};

// y [m, rows] = x W' + bias; rows of x are whole stretches. The warps of a block share out the columns of each tile of 16
// rows of the weight.
template <class T, int kKind, int kScales, int kTiles>
__device__ inline void multiply_block(const Codes& c, const Block& b, const T* x, long long x_row, const T* bias, T* y,
                                      uint4* space) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, splits = blockDim.x / 32 / b.tiles_here;
  const int own_tile = warp % b.tiles_here;
  Part<T, kKind, kScales, kTiles> part(c, b.first_tile + own_tile, x, x_row, b.first, b.end, space);
  // Some stretches at once are on their way.
  constexpr int kAhead = kTiles == 4 ? 1 : 2;  // as registers allow
  Stretch<kScales> held[kAhead];
  const int end = own_tile < b.tiles_left ? c.stretches : 0;
  const auto read = [&](int from) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (from + u * splits < end) part.read(c, from + u * splits, held[u]);
  };
  read(warp / b.tiles_here);
  if constexpr (kKind == kBook) {
    fill_table<T>(c, space);
  }
  for (int s = warp / b.tiles_here; s < end; s += kAhead * splits) {
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
      if (s + u * splits < end) part.add(s + u * splits, held[u]);
    read(s + kAhead * splits);
  }
  // [warp][8 kTiles rows of x][16 rows of the tile]
  float* const sums = reinterpret_cast<float*>(space);
  __syncthreads();
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sums[((warp * kTiles + t) * 8 + lane % 4 * 2 + i % 2) * 16 + lane / 4 + i / 2 * 8] = part.sum[t][i];
  __syncthreads();
  for (int n = threadIdx.x; n < b.tiles_here * kTiles * 128; n += blockDim.x) {
    const int own = n / 16 % b.tiles_here, column = n / 16 / b.tiles_here, x_index = b.first + column;
    const int row = b.row + own * 16 + n % 16;
    if (row >= b.rows || x_index >= b.end) continue;
    float all = 0;
#pragma unroll 4
    for (int split = 0; split < splits; ++split)
      all += sums[((split * b.tiles_here + own) * kTiles * 8 + column) * 16 + n % 16];
    set(y[x_index * static_cast<long long>(b.rows) + row], all * c.factor + (bias ? to_float(bias[row]) : 0.f));
  }
}

template <int kKind, int kTiles>
constexpr int kSpace = kKind == kBook ? 256 * 8 : kMostWarps * kTiles * 32;

// A block takes `tiles_here` tiles of the weight and, as gridDim.y counts, 8 kTiles rows of x.
template <class T, int kKind, int kScales, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32, kTiles == 1 ? 3 : 2) product(const __grid_constant__ Codes c, const T* x, long long x_row,
                                                           const T* bias, T* y, int m, int tiles_here) {
  __shared__ uint4 space[kSpace<kKind, kTiles>];
  const int tile = blockIdx.x * tiles_here, tiles = (c.rows + 15) / 16, first = blockIdx.y * kTiles * 8;
  const Block block{tile, tiles - tile, tiles_here, first, m, tile * 16, c.rows};
  multiply_block<T, kKind, kScales, kTiles>(c, block, x, x_row, bias, y, space);
}

// The run that a row is in: the first that ends behind it. `experts`: in none.
__device__ inline int run_of(const long long* ends, int experts, int row) {
  int low = 0, high = experts;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (ends[middle] > row)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

// x's rows lie in runs, each for a matrix of its own, which ends [experts] close; the matrices, of `rows` rows each, a
// multiple of 16, lie one below the other in the weight. Blocks of each row of x are there, as nobody asks where runs end;
// the first of every 8 kTiles of a run work, for all of these.
template <class T, int kKind, int kScales, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32, kTiles == 1 ? 3 : 2) product_in_runs(const __grid_constant__ Codes c, const T* x,
                                                           long long x_row, const long long* ends, int experts, int rows,
                                                           T* y, int tiles_here) {
  __shared__ uint4 space[kSpace<kKind, kTiles>];
  const int first = blockIdx.y, expert = run_of(ends, experts, first);
  if (expert == experts) return;
  const int begin = expert > 0 ? static_cast<int>(ends[expert - 1]) : 0;
  if ((first - begin) % (8 * kTiles) != 0) return;
  const int tile = blockIdx.x * tiles_here, tiles = rows / 16;
  const Block block{static_cast<long long>(expert) * tiles + tile, tiles - tile, tiles_here, first,
                    static_cast<int>(ends[expert]), tile * 16, rows};
  multiply_block<T, kKind, kScales, kTiles>(c, block, x, x_row, nullptr, y, space);
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

// Numbers of a row of a tile, of a stretch's words, times `factor`; 0 where there are none.
__device__ inline void numbers_of_words(const Codes& c, const void* from, long long at, int stretch, int half,
                                        float factor, float (&to)[4]) {
#pragma unroll
  for (int q = 0; q < 4; ++q) to[q] = 0;
  if (!from) return;
#pragma unroll
  for (int q = 0; q < 4; ++q)
    to[q] = two_rows(from, at + numbers_of_word(c, stretch * 4 + q), c.wide).at[half] * factor;
}

// Of a row, what one lane of a stretch holds: four words, to their columns of `to`.
template <class T, int kKind>
__device__ inline void write_plain(const Codes& c, long long row, int stretch, int quarter, const float* book, T* to) {
  constexpr int n = kPerWord<kKind>;
  const long long tile = row / 16, at = numbers_of_row(c, tile, row % 8);
  const int half = row % 16 / 8;
  const uint4 held = read_once(c.code + (tile * c.stretches + stretch) * 64 + row % 16 * 4 + quarter);
  float scale[4], zero[4], least[4];
  numbers_of_words(c, c.scale, at, stretch, half, c.factor, scale);
  numbers_of_words(c, c.zero, at, stretch, half, 1, zero);
  numbers_of_words(c, c.least, at, stretch, half, c.least_factor, least);
  const unsigned words[4] = {held.x, held.y, held.z, held.w};
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int column = ((stretch * 4 + q) * 4 + quarter) * n;
    if (column >= c.columns) continue;
    constexpr int kPacks = n * sizeof(T) / 8;  // of eight bytes
    union {
      uint2 raw[kPacks];
      T value[n];
    } out;
#pragma unroll
    for (int i = 0; i < n; ++i) set(out.value[i], (number<kKind>(words[q], i, book) - zero[q]) * scale[q] - least[q]);
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
