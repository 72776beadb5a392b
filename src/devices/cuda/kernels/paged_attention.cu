// SPDX-License-Identifier: Apache-2.0
// Attention over a paged cache, for few queries a sequence. A block takes some of a sequence's keys, of one key head, and up to
// `kRows` rows: a row is one query of one of the query heads that share the key head. Its warps go through the keys in turn;
// in a warp, groups of `kLanes` lanes take a key each, a lane `kPacks` packs of its numbers. Each group keeps a running softmax;
// they are joined at the end, and where the keys are shared out over several blocks, by `join`.

struct Cache {
  const int *cu_q, *cu_k, *table;  // cumulative lengths [S + 1]; blocks [S, table_width]
  int table_width, block, kv_heads, heads, k_size, v_size;
  long long k_row, v_row;  // numbers from a position of the cache to the next
  int k_head, v_head;      // and from a head to the next
};
struct Rule {
  float scale, softcap;
  int window;  // 0: none
};

constexpr float kNone = -1e30f;  // the largest score of no scores

// How the cache holds numbers: in T; in codes, whole numbers of eight bits or E4M3 ones, behind which each head has the f32
// that they are multiplied by.
constexpr int kPlain = 0, kWhole = 1, kFp8 = 2;
template <class T, int kCodes>
constexpr int kBytes = kCodes == kPlain ? sizeof(T) : 1;  // of a number

// A head of a position; `step`: numbers from a head to the next.
template <class T, int kCodes>
__device__ inline const char* head_at(const void* cache, long long number) {
  return static_cast<const char*>(cache) + number * kBytes<T, kCodes>;
}
template <int kCodes>
__device__ inline float scale_of(const char* head, int step) {
  return kCodes == kPlain ? 1.f : *reinterpret_cast<const float*>(head + step - 4);
}
// A pack of the numbers of a head, which begins at `number`, from `at` on. Plain ones are addressed in T: by bytes some chips
// run out of registers.
template <class T, int kCodes>
__device__ inline void read_pack(Pack<T>& to, const void* cache, long long number, int step, int at) {
  if constexpr (kCodes == kPlain) {
    to.read(static_cast<const T*>(cache) + number + at);
  } else {
    const char* const head = head_at<T, kCodes>(cache, number);
    const float scale = scale_of<kCodes>(head, step);
#pragma unroll
    for (int i = 0; i < Pack<T>::size; i += 4) {
      const unsigned word = *reinterpret_cast<const unsigned*>(head + at + i);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const unsigned code = word >> 8 * j & 255;
        to.at[i + j] = scale * (kCodes == kWhole ? static_cast<float>(static_cast<signed char>(code)) : e4m3(code));
      }
    }
  }
}
// Eight of them as pairs of two bytes, codes without their scale.
template <class T, int kCodes>
__device__ inline uint4 read_pairs(const char* head, int at) {
  if constexpr (kCodes == kPlain) return *reinterpret_cast<const uint4*>(reinterpret_cast<const T*>(head) + at);
  const auto* const words = reinterpret_cast<const unsigned*>(head + at);
  const unsigned first = words[0], second = words[1];
  if constexpr (kCodes == kWhole)
    return {whole_pair(T{}, first, 0), whole_pair(T{}, first, 1), whole_pair(T{}, second, 0), whole_pair(T{}, second, 1)};
  return {e4m3_pair(T{}, first, 0), e4m3_pair(T{}, first, 1), e4m3_pair(T{}, second, 0), e4m3_pair(T{}, second, 1)};
}

template <class T, int kCodes, int kLanes, int kPacks, int kRows>
__global__ void __launch_bounds__(128) attend(const T* q, const void* k_cache, const void* v_cache, Cache c,
                                              Rule rule, long long q_token, int q_head, float* part, float* part_sums, T* out,
                                              const float* sinks, int row_groups, int most_queries) {
  constexpr int n = Pack<T>::size, kWarps = 4, kGroups = 32 / kLanes, kAhead = 2;
  const int sequence = blockIdx.z, kv_head = blockIdx.y / row_groups, split = blockIdx.x, splits = gridDim.x;
  const int first_query = c.cu_q[sequence], queries = c.cu_q[sequence + 1] - first_query;
  const int keys = c.cu_k[sequence + 1] - c.cu_k[sequence];
  const int each = c.heads / c.kv_heads, rows = queries * each, first_row = blockIdx.y % row_groups * kRows;
  if (first_row >= rows || queries > most_queries) return;
  const int last_row = min(first_row + kRows, rows) - 1;
  const int first_place = keys - queries + first_row / each, last_place = keys - queries + last_row / each;
  const int low = rule.window > 0 ? max(0, first_place - rule.window + 1) : 0, high = last_place + 1;
  const int share = (max(high - low, 0) + splits - 1) / splits;
  const int begin = low + split * share, end = min(begin + share, high);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / kLanes, own = lane % kLanes;

  float query[kRows][kPacks * n], sum[kRows][kPacks * n], largest[kRows], total[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    largest[r] = kNone, total[r] = 0;
    const int row = min(first_row + r, rows - 1);
    const T* const from = q + (first_query + row / each) * q_token + (kv_head * each + row % each) * q_head;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int at = (p * kLanes + own) * n;
      Pack<T> read;
      if (at < c.k_size) read.read(from + at);
#pragma unroll
      for (int i = 0; i < n; ++i) {
        query[r][p * n + i] = at < c.k_size ? read.at[i] * rule.scale : 0.f;
        sum[r][p * n + i] = 0;
      }
    }
  }

  const int* const table = c.table + static_cast<long long>(sequence) * c.table_width;
  for (int start = begin + warp * kGroups * kAhead; start < end; start += kWarps * kGroups * kAhead) {
    Pack<T> key[kAhead][kPacks], value[kAhead][kPacks];
    int place[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      place[u] = start + u * kGroups + group;
      const int known = min(place[u], end - 1);
      const long long row = static_cast<long long>(table[known / c.block]) * c.block + known % c.block;
#pragma unroll
      for (int p = 0; p < kPacks; ++p) {
        const int at = (p * kLanes + own) * n;
        if (at < c.k_size) read_pack<T, kCodes>(key[u][p], k_cache, row * c.k_row + kv_head * c.k_head, c.k_head, at);
        if (at < c.v_size) read_pack<T, kCodes>(value[u][p], v_cache, row * c.v_row + kv_head * c.v_head, c.v_head, at);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int at_row = first_row + r, mine = keys - queries + at_row / each;
      float score[kAhead], top = largest[r];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        float s = 0;
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
          if ((p * kLanes + own) * n >= c.k_size) continue;
#pragma unroll
          for (int i = 0; i < n; ++i) s += query[r][p * n + i] * key[u][p].at[i];
        }
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) s += __shfl_xor_sync(0xffffffffu, s, step);
        if (rule.softcap > 0) s = rule.softcap * tanhf(s / rule.softcap);
        const bool seen = place[u] < end && place[u] <= mine && (rule.window <= 0 || mine - place[u] < rule.window);
        score[u] = seen ? s : kNone;
        top = fmaxf(top, score[u]);
      }
      const float less = __expf(largest[r] - top);
      largest[r] = top, total[r] *= less;
#pragma unroll
      for (int i = 0; i < kPacks * n; ++i) sum[r][i] *= less;
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const float weight = score[u] > kNone ? __expf(score[u] - top) : 0.f;
        total[r] += weight;
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
          if ((p * kLanes + own) * n >= c.v_size) continue;
#pragma unroll
          for (int i = 0; i < n; ++i) sum[r][p * n + i] += weight * value[u][p].at[i];
        }
      }
    }
  }

  // The groups of a warp, then the warps, row by row.
  __shared__ float warp_top[kWarps], warp_total[kWarps], warp_sum[kWarps][kLanes * kPacks * n];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float top = largest[r];
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
    const float less = __expf(largest[r] - top);
    float all = total[r] * less;
#pragma unroll
    for (int step = kLanes; step < 32; step *= 2) all += __shfl_xor_sync(0xffffffffu, all, step);
    __syncthreads();  // the row before has been read
    if (lane == 0) warp_top[warp] = top, warp_total[warp] = all;
#pragma unroll
    for (int i = 0; i < kPacks * n; ++i) {
      float x = sum[r][i] * less;
#pragma unroll
      for (int step = kLanes; step < 32; step *= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
      if (group == 0) warp_sum[warp][(i / n * kLanes + own) * n + i % n] = x;
    }
    __syncthreads();
    if (first_row + r >= rows) continue;
    float block_top = warp_top[0], block_total = 0;
    for (int w = 1; w < kWarps; ++w) block_top = fmaxf(block_top, warp_top[w]);
    for (int w = 0; w < kWarps; ++w) block_total += warp_total[w] * __expf(warp_top[w] - block_top);
    const int row = first_row + r, head = kv_head * each + row % each;
    const long long place_out = static_cast<long long>(first_query + row / each) * c.heads + head;
    for (int i = threadIdx.x; i < c.v_size; i += blockDim.x) {
      float x = 0;
      for (int w = 0; w < kWarps; ++w) x += warp_sum[w][i] * __expf(warp_top[w] - block_top);
      if (splits > 1) {
        part[(place_out * splits + split) * c.v_size + i] = x;
      } else {
        const float sink = sinks ? __expf(sinks[head] - block_top) : 0.f, divisor = block_total + sink;
        set(out[place_out * c.v_size + i], divisor > 0 ? x / divisor : 0.f);
      }
    }
    if (splits > 1 && threadIdx.x == 0) {
      part_sums[(place_out * splits + split) * 2] = block_top;
      part_sums[(place_out * splits + split) * 2 + 1] = block_total;
    }
  }
}

// The same for heads of kSize numbers of two bytes, keys' and values' alike, by the warp's matrix products: a block takes 16
// rows, a warp 16 keys at a time, which lie in one block of the cache. Which of a head's numbers a lane holds follows from
// reading sixteen bytes at a time: products do not mind the order of what they sum up, and a column of the result is where
// its values came from.
template <class T, int kCodes, int kSize>
__global__ void __launch_bounds__(128) attend_in_matrices(const T* q, const void* k_cache, const void* v_cache,
                                                          Cache c, Rule rule, long long q_token, int q_head, float* part,
                                                          float* part_sums, T* out, const float* sinks, int row_groups,
                                                          int most_queries) {
  constexpr int kWarps = 4, kKeys = 16, kRows = 16, kChunks = kSize / 32, kHalves = kSize / 64, kApart = kSize + 4;
  __shared__ float all_top[kWarps][kRows], all_total[kWarps][kRows];
  __shared__ __align__(16) float all_sum[kWarps][kRows * kApart];
  const int sequence = blockIdx.z, kv_head = blockIdx.y / row_groups, split = blockIdx.x, splits = gridDim.x;
  const int first_query = c.cu_q[sequence], queries = c.cu_q[sequence + 1] - first_query;
  const int keys = c.cu_k[sequence + 1] - c.cu_k[sequence];
  const int each = c.heads / c.kv_heads, rows = queries * each, first_row = blockIdx.y % row_groups * kRows;
  if (first_row >= rows || queries > most_queries) return;
  const int last_row = min(first_row + kRows, rows) - 1;
  const int first_place = keys - queries + first_row / each, last_place = keys - queries + last_row / each;
  const int low = rule.window > 0 ? max(0, first_place - rule.window + 1) / kKeys * kKeys : 0, high = last_place + 1;
  const int stretch = kWarps * kKeys, shares = (high - low + stretch - 1) / stretch;
  const int share = (shares + splits - 1) / splits * stretch;
  const int begin = low + split * share, end = min(begin + share, high);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

  const auto place_of = [&](int row) {
    return static_cast<long long>(first_query + row / each) * c.heads + kv_head * each + row % each;
  };
  if (begin >= end && splits > 1) {  // a short sequence: there is nothing for this block
    if (threadIdx.x <= last_row - first_row) {
      const long long at = (place_of(first_row + threadIdx.x) * splits + split) * 2;
      part_sums[at] = kNone, part_sums[at + 1] = 0;
    }
    return;
  }

  uint4 query[2][kChunks];
  int mine[2];  // the places of this lane's two rows
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = min(first_row + g + 8 * r, rows - 1);
    mine[r] = keys - queries + row / each;
    const T* const from = q + (first_query + row / each) * q_token + (kv_head * each + row % each) * q_head;
#pragma unroll
    for (int n = 0; n < kChunks; ++n) query[r][n] = *reinterpret_cast<const uint4*>(from + n * 32 + t * 8);
  }
  float sum[kHalves][8][4] = {}, largest[2] = {kNone, kNone}, total[2] = {0, 0};

  const int* const table = c.table + static_cast<long long>(sequence) * c.table_width;
  for (int base = begin + warp * kKeys; base < end; base += stretch) {
    const long long row = static_cast<long long>(table[base / c.block]) * c.block + base % c.block;
    const auto key = [&](int at) { return head_at<T, kCodes>(k_cache, (row + at) * c.k_row + kv_head * c.k_head); };
    const auto value = [&](int at) { return head_at<T, kCodes>(v_cache, (row + at) * c.v_row + kv_head * c.v_head); };
    uint4 k[2][kChunks], v[kHalves][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kChunks; ++n)
        k[half][n] = read_pairs<T, kCodes>(key(half * 8 + g), n * 32 + t * 8);
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        // Behind the last key there may be what another sequence left, even NaN, which no weight of zero takes away.
        const int at = n / 2 * 8 + t * 2 + n % 2;
        v[h][n] = uint4{0, 0, 0, 0};
        if (base + at < end) v[h][n] = read_pairs<T, kCodes>(value(at), h * 64 + g * 8);
      }

    float score[2][4] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < kChunks; ++n) {
        const uint4 a = query[0][n], b = query[1][n], on = k[half][n];
        const unsigned front[4] = {a.x, b.x, a.y, b.y}, back[4] = {a.z, b.z, a.w, b.w};
        multiply(T{}, score[half], front, on.x, on.y);
        multiply(T{}, score[half], back, on.z, on.w);
      }
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int place = base + half * 8 + t * 2 + i % 2, r = i / 2;
        float s = score[half][i] * rule.scale;
        if constexpr (kCodes != kPlain) s *= scale_of<kCodes>(key(half * 8 + t * 2 + i % 2), c.k_head);
        if (rule.softcap > 0) s = rule.softcap * tanhf(s / rule.softcap);
        const bool seen =
            place < end && place <= mine[r] && (rule.window <= 0 || mine[r] - place < rule.window);
        score[half][i] = seen ? s : kNone;
        top[r] = fmaxf(top[r], score[half][i]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
      top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      const float less = __expf(largest[r] - top[r]);
      largest[r] = top[r], total[r] *= less;
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[h][j][2 * r] *= less, sum[h][j][2 * r + 1] *= less;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool seen = score[half][i] > kNone;
        score[half][i] = seen ? __expf(score[half][i] - top[i / 2]) : 0.f;
        total[i / 2] += score[half][i];
        if (kCodes != kPlain && seen) score[half][i] *= scale_of<kCodes>(value(half * 8 + t * 2 + i % 2), c.v_head);
      }
    const unsigned weight[4] = {pair(T{}, score[0][0], score[0][1]), pair(T{}, score[0][2], score[0][3]),
                                pair(T{}, score[1][0], score[1][1]), pair(T{}, score[1][2], score[1][3])};
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const unsigned of[4][4] = {{v[h][0].x, v[h][0].y, v[h][0].z, v[h][0].w},
                                 {v[h][1].x, v[h][1].y, v[h][1].z, v[h][1].w},
                                 {v[h][2].x, v[h][2].y, v[h][2].z, v[h][2].w},
                                 {v[h][3].x, v[h][3].y, v[h][3].z, v[h][3].w}};
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const unsigned side = j % 2 ? 0x7632 : 0x5410;  // the upper or the lower number of both
        multiply(T{}, sum[h][j], weight, __byte_perm(of[0][j / 2], of[1][j / 2], side),
                 __byte_perm(of[2][j / 2], of[3][j / 2], side));
      }
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 1);
    total[r] += __shfl_xor_sync(0xffffffffu, total[r], 2);
    if (t == 0) all_top[warp][g + 8 * r] = largest[r], all_total[warp][g + 8 * r] = total[r];
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float4* const to =
            reinterpret_cast<float4*>(&all_sum[warp][(g + 8 * r) * kApart + h * 64 + (t * 2 + i) * 8]);
        to[0] = {sum[h][0][2 * r + i], sum[h][1][2 * r + i], sum[h][2][2 * r + i], sum[h][3][2 * r + i]};
        to[1] = {sum[h][4][2 * r + i], sum[h][5][2 * r + i], sum[h][6][2 * r + i], sum[h][7][2 * r + i]};
      }
  }
  __syncthreads();
  for (int n = threadIdx.x; n < (last_row - first_row + 1) * kSize; n += blockDim.x) {
    const int r = n / kSize, i = n % kSize;
    float top = kNone, x = 0, divisor = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, all_top[w][r]);
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float less = __expf(all_top[w][r] - top);
      x += all_sum[w][r * kApart + i] * less, divisor += all_total[w][r] * less;
    }
    const long long place = place_of(first_row + r);
    if (splits > 1) {
      part[(place * splits + split) * kSize + i] = x;
      if (i == 0) part_sums[(place * splits + split) * 2] = top, part_sums[(place * splits + split) * 2 + 1] = divisor;
    } else {
      if (sinks) divisor += __expf(sinks[place % c.heads] - top);
      set(out[place * kSize + i], divisor > 0 ? x / divisor : 0.f);
    }
  }
}

// What the blocks of a row found: one block a query and head. kMost: of splits.
template <class T>
__global__ void join(const float* part, const float* part_sums, T* out, const float* sinks, Cache c, int splits) {
  constexpr int kMost = 64;
  __shared__ float share[kMost];
  const long long place = blockIdx.x;
  float top = sinks ? sinks[place % c.heads] : kNone;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, part_sums[(place * splits + s) * 2]);
  float total = sinks ? __expf(sinks[place % c.heads] - top) : 0.f;
  for (int s = 0; s < splits; ++s) {
    const float own = part_sums[(place * splits + s) * 2 + 1], less = __expf(part_sums[(place * splits + s) * 2] - top);
    total += own * less;
    if (threadIdx.x == 0) share[s] = own > 0 ? less : 0.f;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < c.v_size; i += blockDim.x) {
    float x = 0;
    for (int s = 0; s < splits; ++s)
      if (share[s] > 0) x += part[(place * splits + s) * c.v_size + i] * share[s];
    set(out[place * c.v_size + i], total > 0 ? x / total : 0.f);
  }
}
