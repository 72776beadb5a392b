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

template <class T, int kLanes, int kPacks, int kRows>
__global__ void __launch_bounds__(128) attend(const T* q, const T* k_cache, const T* v_cache, Cache c, Rule rule,
                                              long long q_token, int q_head, float* part, float* part_sums, T* out,
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
        if (at < c.k_size) key[u][p].read(k_cache + row * c.k_row + kv_head * c.k_head + at);
        if (at < c.v_size) value[u][p].read(v_cache + row * c.v_row + kv_head * c.v_head + at);
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

// What the blocks of a row found: one block a query and head.
template <class T>
__global__ void join(const float* part, const float* part_sums, T* out, const float* sinks, Cache c, int splits) {
  const long long place = blockIdx.x;
  const int head = place % c.heads;
  float top = sinks ? sinks[head] : kNone;
  for (int s = 0; s < splits; ++s) top = fmaxf(top, part_sums[(place * splits + s) * 2]);
  float total = sinks ? __expf(sinks[head] - top) : 0.f;
  for (int s = 0; s < splits; ++s)
    total += part_sums[(place * splits + s) * 2 + 1] * __expf(part_sums[(place * splits + s) * 2] - top);
  for (int i = threadIdx.x; i < c.v_size; i += blockDim.x) {
    float x = 0;
    for (int s = 0; s < splits; ++s)
      x += part[(place * splits + s) * c.v_size + i] * __expf(part_sums[(place * splits + s) * 2] - top);
    set(out[place * c.v_size + i], total > 0 ? x / total : 0.f);
  }
}
