// SPDX-License-Identifier: Apache-2.0
// Attention over the paged cache: the kernels of paged_attention.cu on the simulated GPU, launched as the program
// launches them, against softmax in double. What a sequence has not written of its blocks holds NaN.
#include <algorithm>
#include <array>
#include <numeric>

#include "quant/numbers.h"
#include "tests/devices_host/gpu_kernels.h"

namespace apus::kernels {
namespace paged_attention {
#include "devices/cuda/kernels/paged_attention.cu"
}
}  // namespace apus::kernels

namespace apus::test {
namespace {

using namespace kernels::paged_attention;

template <class T>
using Attend = void (*)(const T*, const void*, const void*, Cache, Rule, long long, int, float*, float*, T*,
                        const float*, int, int);

struct Lengths {
  int queries, keys;
};
struct Case {
  std::string what;
  std::vector<Lengths> sequences;
  unsigned splits = 1;
  int window = 0;
  float softcap = 0;
  bool sinks = false;
  double size = 1;         // of queries and keys
  int most_queries = 999;  // the rows of longer sequences are left alone
  bool infinite = false;   // a key that nobody can be near to
};
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {.what = "one key", .sequences = {{1, 1}}},
      {.what = "one token each", .sequences = {{1, 37}, {1, 1}, {1, 16}, {1, 70}}},
      {.what = "shared out", .sequences = {{1, 90}, {1, 3}, {1, 64}}, .splits = 3},
      {.what = "several tokens", .sequences = {{3, 3}, {1, 33}, {5, 40}}, .splits = 2},
      {.what = "window", .sequences = {{1, 64}, {4, 35}, {2, 2}}, .splits = 2, .window = 20},
      {.what = "window of one", .sequences = {{2, 18}}, .window = 1},
      {.what = "all rules", .sequences = {{1, 50}, {3, 21}}, .window = 33, .softcap = 2, .sinks = true},
      {.what = "all rules, shared out",
       .sequences = {{2, 40}, {1, 5}},
       .splits = 4,
       .window = 17,
       .softcap = 30,
       .sinks = true},
      {.what = "far scores", .sequences = {{2, 40}}, .splits = 2, .sinks = true, .size = 12},
      {.what = "near scores", .sequences = {{2, 20}}, .size = 1e-4},
      {.what = "a key at -inf", .sequences = {{2, 20}, {1, 80}}, .splits = 2, .infinite = true},
      {.what = "long ones left alone", .sequences = {{1, 9}, {4, 20}, {2, 2}}, .most_queries = 2},
      {.what = "nothing to do", .sequences = {{0, 12}, {2, 0}, {1, 4}, {0, 0}}},
      {.what = "nothing to do, shared out", .sequences = {{0, 12}, {2, 0}, {1, 4}, {0, 0}}, .splits = 2, .sinks = true},
      {.what = "more queries than keys", .sequences = {{3, 1}, {20, 2}}},
  };
  return all;
}

// The kernel of heads of such sizes, and how it is to be launched.
template <class T>
struct Kernel {
  Attend<T> attend;
  int rows;  // of a block
  int k_size, v_size, heads, kv_heads;
  bool in_matrices = false;
  bool values_in_keys = false;  // one cache, whose first numbers are the values
  int codes = kPlain;           // how the cache holds numbers
};

template <class T>
class Attention {
 public:
  Attention(const Kernel<T>& kernel, const Case& c) : kernel_(kernel), case_(c), numbers_(7) {
    cu_q_ = {0}, cu_k_ = {0};
    for (const auto& [queries, keys] : c.sequences) {
      cu_q_.push_back(cu_q_.back() + queries), cu_k_.push_back(cu_k_.back() + keys);
      width_ = std::max(width_, (keys + kBlock - 1) / kBlock);
      max_q_ = std::max(max_q_, queries);
    }
    fill_queries();
    fill_cache();
    for (int h = 0; h < kernel.heads && c.sinks; ++h)
      sinks_.push_back(h == 1 ? -INFINITY : static_cast<float>(numbers_(3)));
  }

  void run() {
    const int tokens = cu_q_.back(), each = kernel_.heads / kernel_.kv_heads;
    const int rows = std::min(max_q_, case_.most_queries) * each, row_groups = (rows + kernel_.rows - 1) / kernel_.rows;
    const unsigned splits = case_.splits;
    const size_t places = static_cast<size_t>(tokens) * kernel_.heads;
    out_ = unwritten<T>(places * kernel_.v_size);
    auto part = unwritten<float>(splits > 1 ? places * splits * kernel_.v_size : 0),
         sums = unwritten<float>(splits > 1 ? places * splits * 2 : 0);
    const Cache cache{cu_q_.data(),
                      cu_k_.data(),
                      table_.data(),
                      width_,
                      kBlock,
                      kernel_.kv_heads,
                      kernel_.heads,
                      kernel_.k_size,
                      kernel_.v_size,
                      k_row(),
                      v_row(),
                      cached_head(kernel_.k_size),
                      cached_head(kernel_.values_in_keys ? kernel_.k_size : kernel_.v_size)};
    const Rule rule{scale(), case_.softcap, case_.window};
    const float* const sinks = case_.sinks ? sinks_.data() : nullptr;
    const void *keys = k_.data(), *values = kernel_.values_in_keys ? k_.data() : v_.data();
    if (coded()) keys = k_codes_.data(), values = kernel_.values_in_keys ? k_codes_.data() : v_codes_.data();
    gpu::launch({splits, static_cast<unsigned>(kernel_.kv_heads * row_groups), static_cast<unsigned>(cu_q_.size() - 1)},
                {128}, [&] {
                  kernel_.attend(q_.data(), keys, values, cache, rule, q_token(), q_head(), part.data(), sums.data(),
                                 out_.data(), sinks, row_groups, case_.most_queries);
                });
    if (splits > 1)
      gpu::launch({static_cast<unsigned>(places)}, {128},
                  [&] { join<T>(part.data(), sums.data(), out_.data(), sinks, cache, static_cast<int>(splits)); });
  }

  // In f32 an error of about 1e-6 of the largest value, more where scores are large; by matrices, weights are rounded.
  void check() const {
    const double off = (kernel_.in_matrices ? kRounding<T> : 0) + (case_.size > 1 ? 2e-3 : 1e-5);
    for (size_t s = 0; s < case_.sequences.size(); ++s) {
      const auto [queries, keys] = case_.sequences[s];
      std::vector<T> got;
      std::vector<double> want;
      for (int i = 0; i < queries; ++i)
        for (int h = 0; h < kernel_.heads; ++h) {
          const auto first = out_.begin() + ((cu_q_[s] + i) * kernel_.heads + h) * int64_t{kernel_.v_size};
          got.insert(got.end(), first, first + kernel_.v_size);
          const std::vector<double> row = expected(static_cast<int>(s), i, h);
          want.insert(want.end(), row.begin(), row.end());
        }
      const std::string what =
          case_.what + ", sequence " + std::to_string(s) + ", heads of " + std::to_string(kernel_.k_size);
      if (queries <= case_.most_queries)
        expect_close(got, want, 1.5 * kRounding<T>, 4 * off, what);
      else
        EXPECT_TRUE(std::all_of(got.begin(), got.end(), is_unwritten<T>)) << what;
    }
  }

 private:
  static constexpr int kBlock = 16, kPack = 16 / sizeof(T), kGap = 2 * kPack;
  // Heads lie apart, as they do in a wider row of queries and in a cache of several layers.
  static int head_of(int size) { return size + kGap; }
  bool coded() const { return kernel_.codes != kPlain; }
  int cached_head(int size) const { return coded() ? size + 4 : head_of(size); }
  int q_head() const { return head_of(kernel_.k_size); }
  long long q_token() const { return q_head() * kernel_.heads + kGap; }
  long long k_row() const { return cached_head(kernel_.k_size) * kernel_.kv_heads; }
  long long v_row() const { return kernel_.values_in_keys ? k_row() : cached_head(kernel_.v_size) * kernel_.kv_heads; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(kernel_.k_size)); }

  void fill_queries() {
    const int tokens = cu_q_.back();
    q_ = unwritten<T>(tokens ? (tokens - 1) * q_token() + (kernel_.heads - 1) * q_head() + kernel_.k_size : 0);
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < kernel_.heads; ++h) {
        T* const to = &q_[t * q_token() + h * q_head()];
        for (int i = 0; i < kernel_.k_size; ++i) to[i] = as<T>(numbers_(case_.size));
        if (case_.infinite) to[0] = as<T>(1);
      }
  }

  // Blocks in no order, one more than are used; entries of the table that are not used lead nowhere.
  void fill_cache() {
    const int sequences = static_cast<int>(case_.sequences.size());
    std::vector<int> free(sequences * width_ + 1);
    std::iota(free.rbegin(), free.rend(), 0);
    for (size_t i = 0; i + 2 < free.size(); i += 2) std::swap(free[i], free[i + 2]);
    const size_t rows = free.size() * kBlock;
    k_ = unwritten<T>(rows * k_row()), v_ = unwritten<T>(kernel_.values_in_keys ? 0 : rows * v_row());
    if (coded()) k_codes_ = unwritten<unsigned char>(k_.size()), v_codes_ = unwritten<unsigned char>(v_.size());
    table_.assign(std::max(1, sequences * width_), 1 << 28);
    for (int s = 0; s < sequences; ++s)
      for (int place = 0; place < case_.sequences[s].keys; ++place) {
        int& block = table_[s * width_ + place / kBlock];
        if (place % kBlock == 0) block = free.back(), free.pop_back();
        fill_place(int64_t{block} * kBlock + place % kBlock, case_.infinite && place == 1);
      }
  }
  void fill_place(int64_t row, bool infinite) {
    for (int h = 0; h < kernel_.kv_heads; ++h) {
      const auto k_at = row * k_row() + h * cached_head(kernel_.k_size);
      fill_head(k_, k_codes_, k_at, kernel_.k_size, case_.size, row);
      if (infinite) k_[k_at] = as<T>(-INFINITY);
      if (!kernel_.values_in_keys)
        fill_head(v_, v_codes_, row * v_row() + h * cached_head(kernel_.v_size), kernel_.v_size, 1, row + 1);
    }
  }
  // In codes: numbers that these stand for, exactly.
  void fill_head(std::vector<T>& to, std::vector<unsigned char>& codes, int64_t at, int count, double size,
                 int64_t row) {
    static const std::array<float, 256> e4m3 = quant::e4m3_table();
    const auto scale = static_cast<float>(std::exp2(std::floor(std::log2(size)) - 4 - static_cast<double>(row % 2)));
    for (int i = 0; i < count; ++i) {
      const double number = numbers_(size);
      to[at + i] = as<T>(number);
      if (!coded()) continue;
      const auto near = static_cast<float>(number) / scale;
      const bool whole = kernel_.codes == kWhole;
      const float held = whole ? std::nearbyint(std::clamp(near, -127.F, 127.F)) : e4m3[quant::to_e4m3(near)];
      codes[at + i] = whole ? static_cast<unsigned char>(static_cast<signed char>(held)) : quant::to_e4m3(near);
      to[at + i] = as<T>(held * scale);
    }
    if (coded()) std::memcpy(&codes[at + count], &scale, sizeof scale);
  }

  std::vector<double> expected(int s, int query, int head) const {
    const auto [queries, keys] = case_.sequences[s];
    const int own = keys - queries + query, kv_head = head / (kernel_.heads / kernel_.kv_heads);
    const T* const q = &q_[(cu_q_[s] + query) * q_token() + head * q_head()];
    std::vector<double> scores, out(kernel_.v_size);
    std::vector<int64_t> rows;
    for (int place = std::max(0, case_.window > 0 ? own - case_.window + 1 : 0); place <= own; ++place) {
      rows.push_back(int64_t{table_[s * width_ + place / kBlock]} * kBlock + place % kBlock);
      const T* const k = &k_[rows.back() * k_row() + kv_head * cached_head(kernel_.k_size)];
      double dot = 0;
      for (int i = 0; i < kernel_.k_size; ++i) dot += wide(q[i]) * wide(k[i]);
      dot *= scale();
      scores.push_back(case_.softcap > 0 ? case_.softcap * std::tanh(dot / case_.softcap) : dot);
    }
    if (rows.empty()) return out;
    double top = *std::max_element(scores.begin(), scores.end()), total = 0;
    if (case_.sinks) top = std::max<double>(top, sinks_[head]), total = std::exp(sinks_[head] - top);
    for (double& x : scores) total += x = std::exp(x - top);
    for (size_t n = 0; n < rows.size(); ++n) {
      const T* const v = kernel_.values_in_keys ? &k_[rows[n] * k_row() + kv_head * cached_head(kernel_.k_size)]
                                                : &v_[rows[n] * v_row() + kv_head * cached_head(kernel_.v_size)];
      for (int i = 0; i < kernel_.v_size && scores[n] > 0; ++i) out[i] += scores[n] / total * wide(v[i]);
    }
    return out;
  }

  Kernel<T> kernel_;
  Case case_;
  Numbers numbers_;
  std::vector<int> cu_q_, cu_k_, table_;
  int width_ = 1, max_q_ = 1;
  std::vector<T> q_, k_, v_, out_;
  std::vector<unsigned char> k_codes_, v_codes_;
  std::vector<float> sinks_;
};

template <class T>
void check_all(const Kernel<T>& kernel) {
  for (const Case& c : cases()) {
    if (gpu::kSeesRaces && c.what != "all rules, shared out") continue;  // barriers are the same in all of them
    // A value, too, would be infinite; no code is.
    if (c.infinite && (kernel.values_in_keys || kernel.codes != kPlain)) continue;
    Attention<T> attention(kernel, c);
    attention.run();
    attention.check();
  }
}
template <class T, int kLanes, int kPacks, int kRows, int kCodes = kPlain>
void check_attend(int size, int heads, int kv_heads) {
  check_all<T>({.attend = attend<T, kCodes, kLanes, kPacks, kRows>,
                .rows = kRows,
                .k_size = size,
                .v_size = size,
                .heads = heads,
                .kv_heads = kv_heads,
                .codes = kCodes});
}

// As the program chooses lanes, packs and rows for heads of these sizes.
TEST(GpuAttention, Bf16) {
  check_attend<bf16, 4, 1, 1>(24, 2, 2);
  check_attend<bf16, 8, 1, 2>(64, 4, 2);
  check_attend<bf16, 16, 1, 8>(80, 8, 1);
  check_attend<bf16, 16, 1, 4>(96, 6, 2);
  check_attend<bf16, 16, 1, 1>(128, 2, 1);
  check_attend<bf16, 32, 1, 4>(192, 3, 1);
  check_attend<bf16, 32, 1, 8>(256, 8, 1);
  check_attend<bf16, 32, 2, 2>(264, 2, 1);
}
TEST(GpuAttention, F16) {
  check_attend<f16, 4, 1, 8>(32, 8, 2);
  check_attend<f16, 8, 1, 4>(64, 3, 1);
  check_attend<f16, 16, 1, 2>(128, 2, 1);
}
TEST(GpuAttention, F32) {
  check_attend<float, 4, 1, 2>(8, 2, 1);
  check_attend<float, 16, 1, 4>(64, 4, 1);
  check_attend<float, 32, 1, 2>(128, 2, 2);
  check_attend<float, 32, 2, 4>(256, 4, 1);
  check_attend<float, 32, 2, 1>(192, 1, 1);
}
// One cache, as of latent attention.
template <int kCodes = kPlain>
void check_values_in_keys() {
  check_all<bf16>({.attend = attend<bf16, kCodes, 32, 3, 1>,
                   .rows = 1,
                   .k_size = 576,
                   .v_size = 512,
                   .heads = 2,
                   .kv_heads = 1,
                   .values_in_keys = true,
                   .codes = kCodes});
}
TEST(GpuAttention, ValuesSmallerThanKeys) {
  check_all<bf16>({attend<bf16, kPlain, 32, 3, 2>, 2, 576, 512, 4, 1});
  check_values_in_keys();
  check_all<float>({attend<float, kPlain, 16, 1, 2>, 2, 48, 32, 4, 2});
  check_all<float>({attend<float, kPlain, 16, 1, 1>, 1, 32, 64, 2, 1});  // or larger
}
template <class T, int kSize, int kCodes = kPlain>
void check_in_matrices(int heads, int kv_heads) {
  check_all<T>({.attend = attend_in_matrices<T, kCodes, kSize>,
                .rows = 16,
                .k_size = kSize,
                .v_size = kSize,
                .heads = heads,
                .kv_heads = kv_heads,
                .in_matrices = true,
                .codes = kCodes});
}
TEST(GpuAttention, InMatrices) {
  check_in_matrices<bf16, 64>(4, 2);
  check_in_matrices<bf16, 128>(8, 1);
  check_in_matrices<f16, 64>(14, 2);
  check_in_matrices<f16, 128>(2, 2);
}

TEST(GpuAttention, OverCodes) {
  check_attend<bf16, 16, 1, 8, kWhole>(80, 8, 1);
  check_attend<bf16, 16, 1, 4, kFp8>(96, 6, 2);
  check_attend<f16, 8, 1, 4, kWhole>(64, 3, 1);
  check_attend<float, 32, 1, 2, kWhole>(128, 2, 2);
  check_attend<float, 16, 1, 4, kFp8>(64, 4, 1);
  check_values_in_keys<kWhole>();
}
TEST(GpuAttention, OverCodesInMatrices) {
  check_in_matrices<bf16, 64, kWhole>(4, 2);
  check_in_matrices<bf16, 128, kFp8>(8, 1);
  check_in_matrices<f16, 64, kFp8>(14, 2);
  check_in_matrices<f16, 128, kWhole>(2, 2);
}

}  // namespace
}  // namespace apus::test
