// SPDX-License-Identifier: Apache-2.0
// The next tokens of rows of logits, a block of whole warps a row: no sorting, no sums whose order is left to chance.
//
// Without filters the drawn token is the first, by id, with which the sum of weights passes number * total (first_past).
// With filters it is the same by falling logit, among those that are kept. Who is kept and who is drawn are then the same
// question: down to which logit do counts, or weights, reach so much (reach)? Histograms over ever narrower ranges of logits
// answer it; as soon as what is left is few, it is copied next to the multiprocessor. There, weights are whole numbers.

struct Rule {  // as ops/draw_tokens.h has it
  double row, temperature, top_k, top_p, min_p, epsilon_cutoff, number, logprob;
};

using Whole = unsigned long long;
constexpr float kUnit = 17592186044416.f;  // 2^44, a weight of 1: the sum of 2^18 fits
constexpr int kBins = 2048, kBinBits = 11, kList = 4096, kMostWarps = 32, kAhead = 8;

__device__ inline float never() { return __uint_as_float(0xff800000u); }

// Rising whole numbers for rising numbers; 0 and -0 are one.
__device__ inline unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline float number_of(unsigned key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }

struct Weight {
  float largest, scale;  // scale: 1 / temperature
  __device__ float operator()(float x) const { return expf((x - largest) * scale); }
  __device__ Whole whole(float x) const { return static_cast<Whole>((*this)(x) * kUnit); }
};
struct Equal {
  float to;
  __device__ float operator()(float x) const { return x == to ? 1.f : 0.f; }
};

// Of some numbers x: the largest, the sums of exp((x - largest) / temperature), and of exp(x - largest) if asked for.
struct Sums {
  float largest, tempered, plain;

  __device__ void raise(float to, float scale, bool both) {
    if (!(to > largest)) return;
    tempered *= expf((largest - to) * scale);
    if (both) plain *= expf(largest - to);
    largest = to;
  }
  __device__ void add(float x, float scale, bool both) {  // NaN and inf make the sum NaN
    if (x == never()) return;
    raise(x, scale, both);
    tempered += expf((x - largest) * scale);
    if (both) plain += expf(x - largest);
  }
};

struct Reached {
  unsigned key;       // of the logit with which the target is reached
  Whole above, at, each;  // weights of all above it, of those that equal it, of one of these
  bool there;             // false: not even all reach it; `above` is the weight of all
};

// What filters and draws by falling logit look through: a row, or those of it that may still matter.
struct Logits {
  const float* at;
  int size;
  bool copied;
};

struct Shared {
  Rule rule;
  Weight weight;
  Logits logits;
  unsigned count[kBins], low[kBins], high[kBins];  // weights in two halves
  float list[kList];
  Sums sums[kMostWarps];
  double part[kMostWarps];  // what each warp's part of a row adds up to
  Whole warp_count[kMostWarps], warp_weight[kMostWarps];
  double total, plain, before;
  int picked, token, listed, bin;
  Whole above_count, above_weight;
};

// f(x) of numbers begin to end, by threads that are `stride` in all; -inf stands for what is not there, so that warps stay
// together.
template <class F>
__device__ inline void each(const float* list, int begin, int end, int thread, int stride, F f) {
  for (int base = begin; base < end; base += kAhead * stride) {
    float x[kAhead];
#pragma unroll
    for (int u = 0; u < kAhead; ++u) {
      const int at = base + u * stride + thread;
      x[u] = at < end ? list[at] : never();
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u) f(x[u]);
  }
}

// A warp's part of begin to end.
__device__ inline int part_length(int begin, int end) {
  const int warps = blockDim.x / 32;
  return ((end - begin + warps - 1) / warps + 31) / 32 * 32;
}

// The largest and the sums of a row; s.part: of its weights.
__device__ __noinline__ void scan(const float* row, int size, float scale, bool both, Shared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32, length = part_length(0, size);
  Sums own{never(), 0.f, 0.f};
  each(row, min(size, warp * length), min(size, (warp + 1) * length), lane, 32,
       [&](float x) { own.add(x, scale, both); });
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    Sums other{__shfl_xor_sync(0xffffffffu, own.largest, apart), __shfl_xor_sync(0xffffffffu, own.tempered, apart),
               __shfl_xor_sync(0xffffffffu, own.plain, apart)};
    other.raise(own.largest, scale, both), own.raise(other.largest, scale, both);
    own.tempered += other.tempered, own.plain += other.plain;
  }
  if (lane == 0) s.sums[warp] = own;
  __syncthreads();
  if (threadIdx.x == 0) {
    float largest = never();
    for (int w = 0; w < warps; ++w) largest = fmaxf(largest, s.sums[w].largest);
    s.total = s.plain = 0;
    for (int w = 0; w < warps; ++w) {
      s.sums[w].raise(largest, scale, both);
      s.total += s.part[w] = s.sums[w].tempered;
      s.plain += both ? s.sums[w].plain : s.sums[w].tempered;
    }
    s.weight = {largest, scale};
    s.logits = {row, size, false};
  }
  __syncthreads();
}

// The first place of the row at which the sum of amount(x) is above `wanted`; where rounding keeps the sum from it, the last
// with an amount. known: s.part holds the parts' sums.
template <class Amount>
__device__ __noinline__ int first_past(const float* row, int size, Amount amount, double wanted, bool known, Shared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  int begin = 0, end = size;
  for (int level = 0; level < 2; ++level) {
    const int length = part_length(begin, end);
    if (level > 0 || !known) {
      float sum = 0;
      each(row, min(end, begin + warp * length), min(end, begin + (warp + 1) * length), lane, 32,
           [&](float x) { sum += amount(x); });
      sum = sum_of_warp(sum);
      if (lane == 0) s.part[warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      double sum = 0;
      s.picked = 0, s.before = 0;
      for (int w = 0; w < warps && !(sum > wanted); ++w)
        if (s.part[w] > 0) s.picked = w, s.before = sum, sum += s.part[w];
    }
    __syncthreads();
    begin += s.picked * length, end = min(end, begin + length), wanted -= s.before;
    __syncthreads();
  }
  if (warp == 0) {
    int found = begin;
    double sum = 0;
    for (int base = begin; base < end && !(sum > wanted); base += 32) {
      const float own = base + lane < end ? amount(row[base + lane]) : 0.f;
      float upto = own;
#pragma unroll
      for (int apart = 1; apart < 32; apart *= 2) {
        const float before = __shfl_up_sync(0xffffffffu, upto, apart);
        if (lane >= apart) upto += before;
      }
      const unsigned there = __ballot_sync(0xffffffffu, own > 0),
                     past = __ballot_sync(0xffffffffu, own > 0 && sum + upto > wanted);
      if (there) found = base + 31 - __clz(there);
      if (past) {
        found = base + __ffs(past) - 1;
        break;
      }
      sum += __shfl_sync(0xffffffffu, upto, 31);
    }
    if (lane == 0) s.token = found;
  }
  __syncthreads();
  return s.token;
}

// The lowest logit for which is(x), as it is for all above: `no` is below it, and it is for `yes`.
template <class Is>
__device__ unsigned lowest(unsigned no, unsigned yes, Is is) {
  while (yes - no > 1) {
    const unsigned middle = no + (yes - no) / 2;
    if (is(number_of(middle)))
      yes = middle;
    else
      no = middle;
  }
  return yes;
}

// The lowest logit whose weight is at least `bar`, and not 0 as a whole number.
__device__ __noinline__ unsigned key_for(double bar, const Shared& s) {
  const Weight weight = s.weight;
  const double least = fmax(bar, 1.0 / kUnit);
  return lowest(key_of(never()), key_of(weight.largest), [&](float x) { return weight(x) >= least; });
}

// Only those from `low` on are looked at from now on: copies them, if they are few.
__device__ __noinline__ void narrow(unsigned low, Shared& s) {
  const Logits of = s.logits;
  if (of.copied) return;
  __syncthreads();
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  each(of.at, 0, of.size, threadIdx.x, blockDim.x, [&](float x) {
    const bool in = key_of(x) >= low;
    const unsigned these = __ballot_sync(0xffffffffu, in);
    if (!these) return;
    int place = 0;
    if (lane == 0) place = atomicAdd(&s.listed, __popc(these));
    place = __shfl_sync(0xffffffffu, place, 0) + __popc(these & ((1u << lane) - 1));
    if (in && place < kList) s.list[place] = x;
  });
  __syncthreads();
  if (threadIdx.x == 0 && s.listed <= kList) s.logits = {s.list, s.listed, true};
  __syncthreads();
}

// Sums of the threads before this one (exclusive), and of all.
__device__ inline void sums_before(Whole& x, Whole* of_warp, Whole& all) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  Whole upto = x;
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    const Whole before = __shfl_up_sync(0xffffffffu, upto, apart);
    if (lane >= apart) upto += before;
  }
  if (lane == 31) of_warp[warp] = upto;
  __syncthreads();
  x = upto - x, all = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) x += of_warp[w];
    all += of_warp[w];
  }
}

// Which bin a logit belongs to: even steps of logits for a whole row, which spreads it best; then of keys, down to one each.
struct Bins {
  unsigned low;
  int shift;
  float largest, steps;  // steps: of logits to a bin, inverse; 0: of keys

  __device__ int operator()(float x) const {
    if (steps == 0) return static_cast<int>((key_of(x) - low) >> shift);
    return kBins - 1 - static_cast<int>(fminf((largest - x) * steps, kBins - 1));
  }
  // The first and the last key of a bin between low and high.
  __device__ void range(int bin, unsigned& from, unsigned& to) const {
    if (steps == 0) {
      from += static_cast<unsigned>(bin) << shift, to = min(to, from + ((1u << shift) - 1));
      return;
    }
    const auto at_least = [&](int least) {
      return (*this)(number_of(from)) >= least ? from : lowest(from, to, [&](float x) { return (*this)(x) >= least; });
    };
    const unsigned first = at_least(bin);
    if (bin < kBins - 1) to = at_least(bin + 1) - 1;
    from = first;
  }
};

__device__ inline Whole weight_in(const Shared& s, int bin) { return static_cast<Whole>(s.high[bin]) << 32 | s.low[bin]; }

// From the largest logit down to `low`: where counts (of_counts) or weights reach `target`, at least 1.
__device__ __noinline__ Reached reach(unsigned low, bool of_counts, Whole target, Shared& s) {
  const Weight weight = s.weight;
  unsigned high = key_of(weight.largest);
  Whole above_count = 0, above = 0;
  bool whole_row = true;
  for (;;) {
    const Logits of = s.logits;
    const int bits = 32 - __clz(high - low), shift = max(0, bits - kBinBits);
    const float span = weight.largest - number_of(low);
    const Bins bins{low, shift, weight.largest, of.copied || !whole_row || shift == 0 ? 0.f : (kBins - 1) / span};
    whole_row = false;
    __syncthreads();
    for (int i = threadIdx.x; i < kBins; i += blockDim.x) s.count[i] = s.low[i] = s.high[i] = 0;
    if (threadIdx.x == 0) s.bin = -1;
    __syncthreads();
    each(of.at, 0, of.size, threadIdx.x, blockDim.x, [&](float x) {
      const unsigned key = key_of(x);
      if (key < low || key > high) return;
      const int bin = bins(x);
      const Whole w = weight.whole(x);
      const unsigned part = static_cast<unsigned>(w), old = atomicAdd(&s.low[bin], part);
      const unsigned rest = static_cast<unsigned>(w >> 32) + (old + part < part);
      if (rest) atomicAdd(&s.high[bin], rest);
      atomicAdd(&s.count[bin], 1u);
    });
    __syncthreads();
    // Bins by falling logit, some to each thread.
    const int own = kBins / blockDim.x, first = kBins - 1 - static_cast<int>(threadIdx.x) * own;
    Whole count = 0, sum = 0, all_count, all_sum;
    for (int i = 0; i < own; ++i) count += s.count[first - i], sum += weight_in(s, first - i);
    Whole mine = of_counts ? count : sum;
    sums_before(count, s.warp_count, all_count), sums_before(sum, s.warp_weight, all_sum);
    Whole reached = of_counts ? above_count + count : above + sum;
    if (reached < target && reached + mine >= target) {
      int bin = first;
      for (; bin > first - own + 1; --bin) {
        mine = of_counts ? s.count[bin] : weight_in(s, bin);
        if (reached + mine >= target) break;
        reached += mine, count += s.count[bin], sum += weight_in(s, bin);
      }
      s.bin = bin, s.above_count = count, s.above_weight = sum;
    }
    __syncthreads();
    const int bin = s.bin;
    if (bin < 0) return {low, above + all_sum, 0, 1, false};
    above_count += s.above_count, above += s.above_weight;
    bins.range(bin, low, high);
    if (low == high) return {low, above, weight_in(s, bin), weight_in(s, bin) / s.count[bin], true};
    if (above_count + s.count[bin] <= kList) narrow(low, s);
  }
}

__device__ inline Whole at_least_one(double x) { return x < 1 ? 1 : static_cast<Whole>(x); }

// By falling logit, among those that the filters keep. (Every thread computes the same.)
__device__ __noinline__ int draw_filtered(const float* row, int size, Shared& s) {
  const Rule& r = s.rule;
  constexpr Whole kAll = ~0ull;
  const bool has_k = r.top_k > 0 && r.top_k < size, has_p = r.top_p < 1, other = has_k || has_p || r.min_p > 0;
  double bar = 0;
  if (!has_k) {
    bar = r.min_p;
    // Below a share of (1 - p) / size each, all together are no part of the nucleus.
    if (has_p) bar = fmax(bar, 0.999 * (1 - r.top_p) * s.total / size);
    if (!other) bar = fmin(r.epsilon_cutoff * s.total, 1.0);
  }
  unsigned low = key_for(bar, s);
  if (!has_k) narrow(low, s);
  Whole kept = 0;
  if (has_k) {
    const Reached k = reach(low, true, static_cast<Whole>(r.top_k), s);
    if (k.there) low = k.key;
    kept = k.above + k.at;
  }
  if (has_p) {
    const Whole target = at_least_one(ceil(r.top_p * (has_k ? static_cast<double>(kept) : s.total * kUnit)));
    const Reached p = reach(low, false, target, s);
    if (p.there) low = p.key;
    kept = p.there ? p.above + (target - p.above + p.each - 1) / p.each * p.each : p.above;
  }
  if (!has_k && !has_p) kept = reach(low, false, kAll, s).above;
  for (int filter = 0; filter < 2; ++filter) {
    const double least = filter == 0 ? r.min_p
                                     : fmin(r.epsilon_cutoff * (other ? static_cast<double>(kept) / kUnit : s.total), 1.0);
    const unsigned key = least > 0 ? key_for(least, s) : 0;
    if (key <= low) continue;
    low = key;
    kept = reach(low, false, kAll, s).above;
  }
  const Whole target = min(static_cast<Whole>(r.number * static_cast<double>(kept)) + 1, kept);
  const Reached d = reach(low, false, target, s);
  const Whole equals_before = (target - d.above - 1) / d.each;
  return first_past(row, size, Equal{number_of(d.key)}, static_cast<double>(equals_before), false, s);
}

// out: token and log-probability of each rule.
__global__ void __launch_bounds__(1024) draw(const float* logits, long long stride, int size, const Rule* rules,
                                             float* out) {
  __shared__ Shared s;
  if (threadIdx.x == 0) s.rule = rules[blockIdx.x];
  __syncthreads();
  const Rule& r = s.rule;
  const float* const row = logits + static_cast<long long>(r.row) * stride;
  const bool greedy = r.temperature == 0;
  const float scale = greedy ? 1.f : static_cast<float>(fmin(1 / r.temperature, 1e30));
  const bool plain = r.logprob == 1 && scale != 1;
  scan(row, size, scale, plain, s);
  const bool usable = s.total - s.total == 0 && fabsf(s.weight.largest) < __uint_as_float(0x7f800000u);
  int token = -1;
  if (usable) {
    const bool filtered = (r.top_k > 0 && r.top_k < size) || r.top_p < 1 || r.min_p > 0 || r.epsilon_cutoff > 0;
    if (greedy)
      token = first_past(row, size, Equal{s.weight.largest}, 0, false, s);
    else if (!filtered)
      token = first_past(row, size, s.weight, r.number * s.total, true, s);
    else
      token = draw_filtered(row, size, s);
  }
  if (threadIdx.x != 0) return;
  out[2 * blockIdx.x] = static_cast<float>(token);
  const bool asked = token >= 0 && r.logprob != 0, tempered = r.logprob != 1;
  const double above = asked ? static_cast<double>(row[token]) - s.weight.largest : 0;
  out[2 * blockIdx.x + 1] = !asked     ? 0.f
                            : tempered ? static_cast<float>(above * s.weight.scale - log(s.total))
                                       : static_cast<float>(above - log(s.plain));
}
