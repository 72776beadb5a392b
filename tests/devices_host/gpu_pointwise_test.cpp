// SPDX-License-Identifier: Apache-2.0
// Rotation, SwiGLU and the places of the cache: the kernels of devices/cuda/kernels on the simulated GPU, launched as
// the program launches them, against the formulas of src/ops in double. Unless said otherwise a result may be off by
// one and a half roundings to its type: its own, and what f32 was off before it.
#include <algorithm>

#include "quant/numbers.h"
#include "tests/devices_host/gpu_kernels.h"

namespace apus::kernels {
namespace rope {
#include "devices/cuda/kernels/rope.cu"
}
namespace rope_table {
#include "devices/cuda/kernels/rope_table.cu"
}
namespace dropped {
#include "devices/cuda/kernels/dropped.cu"
}
namespace swiglu {
#include "devices/cuda/kernels/swiglu.cu"
}
namespace store_kv {
#include "devices/cuda/kernels/store_kv.cu"
}
}  // namespace apus::kernels

namespace apus::test {
namespace {

unsigned threads_for(int64_t work, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>((work + 31) / 32 * 32, 32, most));
}

template <class T>
class GpuPointwise : public ::testing::Test {};
TYPED_TEST_SUITE(GpuPointwise, NumberTypes);

struct Turn {
  int tokens, q_heads, k_heads, size, r;
  int gap;  // between a head and the next, and behind a token's last one
  float sign;
};

// [tokens, heads, size] with gaps, which hold what must not be read.
struct Laid {
  int tokens, heads, size, gap;
  int64_t head() const { return size + gap; }
  int64_t token() const { return heads * head() + gap; }
  size_t count() const { return tokens == 0 ? 0 : static_cast<size_t>((tokens - 1) * token() + heads * head() - gap); }
  int64_t at(int t, int h, int i) const { return t * token() + h * head() + i; }
  template <class T>
  std::vector<T> filled(Numbers& numbers, double scale = 1) const {
    std::vector<T> out = unwritten<T>(count());
    for (int t = 0; t < tokens; ++t)
      for (int h = 0; h < heads; ++h)
        for (int i = 0; i < size; ++i) out[at(t, h, i)] = as<T>(numbers(scale));
    return out;
  }
};

template <class T>
std::vector<double> turned(const std::vector<T>& x, const Laid& at, const std::vector<float>& cos,
                           const std::vector<float>& sin, int r, float sign) {
  std::vector<double> out;
  for (int t = 0; t < at.tokens; ++t)
    for (int h = 0; h < at.heads; ++h)
      for (int i = 0; i < at.size; ++i) {
        const auto of = [&](int place) { return wide(x[at.at(t, h, place)]); };
        const int angle = t * r + i % std::max(r, 1);
        if (i < r)
          out.push_back(of(i) * cos[angle] - of(i + r) * sin[angle] * sign);
        else if (i < 2 * r)
          out.push_back(of(i) * cos[angle] + of(i - r) * sin[angle] * sign);
        else
          out.push_back(of(i));
      }
  return out;
}

// Absolutely, too: two products of about one may leave next to nothing.
TYPED_TEST(GpuPointwise, RopeTurnsHeads) {
  using T = TypeParam;
  Numbers numbers(1);
  for (const Turn& c : {Turn{1, 1, 1, 64, 32, 0, 1}, Turn{3, 4, 2, 128, 64, 0, -1}, Turn{2, 14, 2, 80, 16, 5, 1},
                        Turn{5, 3, 1, 7, 2, 1, 1}, Turn{2, 2, 3, 6, 3, 8, -1}, Turn{3, 32, 8, 96, 48, 3, 1}}) {
    const Laid q_at{c.tokens, c.q_heads, c.size, c.gap}, k_at{c.tokens, c.k_heads, c.size, c.gap};
    const auto q = q_at.filled<T>(numbers), k = k_at.filled<T>(numbers);
    std::vector<float> cos(c.tokens * c.r), sin(cos.size());
    for (size_t i = 0; i < cos.size(); ++i) {
      const double angle = numbers(100);
      cos[i] = static_cast<float>(std::cos(angle)), sin[i] = static_cast<float>(std::sin(angle));
    }
    auto new_q = unwritten<T>(c.tokens * c.q_heads * c.size), new_k = unwritten<T>(c.tokens * c.k_heads * c.size);
    const unsigned threads = threads_for((c.q_heads + c.k_heads) * (c.size - c.r), 512);
    gpu::launch({static_cast<unsigned>(c.tokens)}, {threads}, [&] {
      kernels::rope::forward<T>(q.data(), k.data(), new_q.data(), new_k.data(), {q_at.token(), q_at.head(), c.q_heads},
                                {k_at.token(), k_at.head(), c.k_heads}, cos.data(), sin.data(), c.tokens, c.size, c.r,
                                c.sign);
    });
    const std::string what = "heads of " + std::to_string(c.size);
    expect_close(new_q, turned(q, q_at, cos, sin, c.r, c.sign), 1.5 * kRounding<T>, 1e-6, what);
    expect_close(new_k, turned(k, k_at, cos, sin, c.r, c.sign), 1.5 * kRounding<T>, 1e-6, what);
  }
}

// To the bit, as the host's: places beyond what f32 counts, three axes, a scale.
TEST(GpuRopeTable, IsTheHosts) {
  for (const int tokens : {1, 5, 300}) {
    const int r = 24;
    std::vector<long long> position(3 * tokens);
    for (size_t i = 0; i < position.size(); ++i)
      position[i] = i % 7 == 0 ? 16777217 + static_cast<long long>(i) : i * 31;
    kernels::rope_table::Frequencies frequency{};
    for (int i = 0; i < r; ++i)
      frequency.inverse[i] = static_cast<float>(std::pow(10000., -i / 24.)), frequency.axis[i] = i % 3;
    const double scale = 1.25, sign = tokens == 5 ? -1 : 1;
    auto cos = unwritten<float>(tokens * r), sin = cos;
    gpu::launch({static_cast<unsigned>((tokens * r + 255) / 256)}, {256}, [&] {
      kernels::rope_table::table(position.data(), cos.data(), sin.data(), frequency, tokens, r, scale, sign);
    });
    for (int t = 0; t < tokens; ++t)
      for (int i = 0; i < r; ++i) {
        const double angle = static_cast<float>(position[frequency.axis[i] * tokens + t]) * frequency.inverse[i];
        ASSERT_EQ(cos[t * r + i], static_cast<float>(std::cos(angle) * scale)) << t << ", " << i;
        ASSERT_EQ(sin[t * r + i], static_cast<float>(std::sin(sign * angle) * scale)) << t << ", " << i;
      }
  }
}

struct Rows {
  unsigned count;
  int size;  // in packs
  int gap;   // in packs, behind a row of the gate; twice that behind one of the other inputs
  double scale;
};
const Rows kRows[] = {{1, 1, 0, 1}, {3, 5, 1, 4}, {2, 257, 0, 1}, {4, 33, 7, 30}, {1, 3, 0, 1e-6}, {2, 4, 2, 200}};

// Rows that lie apart.
template <class T>
struct Gate {
  Gate(Numbers& numbers, const Rows& c, int gap) : at{static_cast<int>(c.count), 1, c.size * pack, gap * pack} {
    x = at.filled<T>(numbers, c.scale);
  }
  double of(int row, int i) const { return wide(x[at.at(row, 0, i)]); }
  static constexpr int pack = kernels::Pack<T>::size;
  Laid at;
  std::vector<T> x;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// silu is rounded before the product, and that rounding may fall on either side: three roundings.
TYPED_TEST(GpuPointwise, Swiglu) {
  using T = TypeParam;
  Numbers numbers(2);
  for (const Rows& c : kRows) {
    Gate<T> gate(numbers, c, c.gap), up(numbers, c, 2 * c.gap);
    gate.x[0] = as<T>(1e4), up.x[0] = as<T>(0.5);                                                    // silu(x) is x
    if (c.count > 1) gate.x[gate.at.at(1, 0, 0)] = as<T>(-std::numeric_limits<double>::infinity());  // -inf / inf
    const int size = gate.at.size;
    auto y = unwritten<T>(c.count * size);
    const unsigned blocks = (c.size + 255) / 256;
    gpu::launch({blocks, c.count}, {256}, [&] {
      kernels::swiglu::forward<T>(gate.x.data(), up.x.data(), y.data(), gate.at.token(), up.at.token(), size);
    });
    std::vector<double> want;
    for (unsigned row = 0; row < c.count; ++row)
      for (int i = 0; i < size; ++i) {
        const double g = gate.of(row, i);
        want.push_back(held<T>(g * sigmoid(g)) * up.of(row, i));
      }
    expect_close(y, want, sizeof(T) == 4 ? 1e-5 : 3 * kRounding<T>, 1e-7, "rows of " + std::to_string(size));
  }
}

// In f32 until the end. The bracket may be next to nothing where 1 + g (1 - s) is: absolutely, 1e-5 of the factors.
TYPED_TEST(GpuPointwise, SwigluBackward) {
  using T = TypeParam;
  Numbers numbers(3);
  for (const Rows& c : kRows) {
    const Gate<T> grad(numbers, c, 0), gate(numbers, c, c.gap), up(numbers, c, 2 * c.gap);
    const int size = gate.at.size;
    auto dgate = unwritten<T>(c.count * size), dup = dgate;
    const unsigned blocks = (c.size + 255) / 256;
    gpu::launch({blocks, c.count}, {256}, [&] {
      kernels::swiglu::backward<T>(grad.x.data(), gate.x.data(), up.x.data(), dgate.data(), dup.data(), grad.at.token(),
                                   gate.at.token(), up.at.token(), size, size);
    });
    std::vector<double> want_gate, want_up;
    double most = 0;
    for (unsigned row = 0; row < c.count; ++row)
      for (int i = 0; i < size; ++i) {
        const double d = grad.of(row, i), g = gate.of(row, i), u = up.of(row, i), s = sigmoid(g);
        want_gate.push_back(d * u * s * (1 + g * (1 - s)));
        want_up.push_back(d * g * s);
        most = std::max(most, std::fabs(d * u));
      }
    const double relative = 1.5 * kRounding<T> + 1e-5;
    expect_close(dgate, want_gate, relative, 1e-6 * most, "gate");
    expect_close(dup, want_up, relative, 1e-7, "up");
  }
}

struct Places {
  int tokens, heads, k_size, v_size, gap;
  int cache;  // places
};

// Where a token has its place, and nowhere else, to the bit. Two sizes; tokens without a place; gaps.
TYPED_TEST(GpuPointwise, StoreKv) {
  using T = TypeParam;
  Numbers numbers(4);
  for (const Places& c : {Places{1, 1, 64, 64, 0, 1}, Places{5, 2, 24, 16, 3, 9}, Places{3, 8, 128, 128, 0, 40},
                          Places{4, 1, 9, 7, 1, 4}}) {
    const Laid k_at{c.tokens, c.heads, c.k_size, c.gap}, v_at{c.tokens, c.heads, c.v_size, 2 * c.gap};
    const auto k = k_at.filled<T>(numbers), v = v_at.filled<T>(numbers);
    std::vector<long long> slot(c.tokens);
    for (int t = 0; t < c.tokens; ++t) slot[t] = t == 1 ? -1 : c.cache - 1 - t;
    auto k_cache = unwritten<T>(c.cache * c.heads * c.k_size), v_cache = unwritten<T>(c.cache * c.heads * c.v_size);
    auto want_k = k_cache, want_v = v_cache;
    for (int t = 0; t < c.tokens; ++t)
      for (int h = 0; h < c.heads && slot[t] >= 0; ++h) {
        std::copy_n(&k[k_at.at(t, h, 0)], c.k_size, &want_k[(slot[t] * c.heads + h) * c.k_size]);
        std::copy_n(&v[v_at.at(t, h, 0)], c.v_size, &want_v[(slot[t] * c.heads + h) * c.v_size]);
      }
    gpu::launch({static_cast<unsigned>(c.tokens)}, {threads_for(c.heads * std::max(c.k_size, c.v_size), 256)}, [&] {
      kernels::store_kv::store<T>(k.data(), v.data(), k_cache.data(), v_cache.data(), slot.data(), k_at.token(),
                                  k_at.head(), v_at.token(), v_at.head(), c.heads, c.k_size, c.v_size);
    });
    EXPECT_EQ(std::memcmp(k_cache.data(), want_k.data(), k_cache.size() * sizeof(T)), 0) << c.k_size;
    EXPECT_EQ(std::memcmp(v_cache.data(), want_v.data(), v_cache.size() * sizeof(T)), 0) << c.v_size;
  }
}

template <class T, bool kWhole>
void check_store_codes() {
  Numbers numbers(6);
  constexpr int kTokens = 4, kHeads = 3, kSize = 40, kRow = kSize + 4, kPlaces = 9;
  const Laid at{kTokens, kHeads, kSize, 8};
  auto x = at.filled<T>(numbers);
  for (int i = 0; i < kSize; ++i) x[at.at(0, 1, i)] = as<T>(0);  // a head of zeros
  for (int i = 0; i < kSize; ++i)
    x[at.at(3, 2, i)] = as<T>(i % 9 == 0 ? 1 : 1e-3 * i);  // small ones beside a large one
  const std::vector<long long> slot{8, -1, 0, 5};
  auto keys = unwritten<char>(kPlaces * kHeads * kRow), values = keys, want = keys;
  for (int t = 0; t < kTokens; ++t)
    for (int h = 0; h < kHeads && slot[t] >= 0; ++h) {
      char* const row = &want[(slot[t] * kHeads + h) * kRow];
      float most = 0;
      for (int i = 0; i < kSize; ++i) most = std::max(most, static_cast<float>(std::fabs(wide(x[at.at(t, h, i)]))));
      const float scale = most / (kWhole ? 127.F : 448.F), inverse = scale > 0 ? 1 / scale : 0;
      for (int i = 0; i < kSize; ++i) {
        const float number = static_cast<float>(wide(x[at.at(t, h, i)])) * inverse;
        row[i] = kWhole ? static_cast<char>(static_cast<signed char>(std::nearbyint(std::clamp(number, -127.F, 127.F))))
                        : static_cast<char>(quant::to_e4m3(std::clamp(number, -448.F, 448.F)));
      }
      std::memcpy(row + kSize, &scale, sizeof scale);
    }
  gpu::launch({kTokens}, {64}, [&] {
    kernels::store_kv::store_codes<T, kWhole>(x.data(), x.data(), keys.data(), values.data(), slot.data(), at.token(),
                                              at.head(), at.token(), at.head(), kHeads, kSize, kSize);
  });
  EXPECT_EQ(std::memcmp(keys.data(), want.data(), keys.size()), 0);
  EXPECT_EQ(std::memcmp(values.data(), want.data(), values.size()), 0);
}
TYPED_TEST(GpuPointwise, StoreKvInCodes) {
  check_store_codes<TypeParam, true>();
  check_store_codes<TypeParam, false>();
}

// The host's elements (tensor/noise.cpp) and no others; an odd number of them, and more than there are threads.
TYPED_TEST(GpuPointwise, Dropped) {
  using T = TypeParam;
  const auto kept = [](unsigned i, unsigned seed, unsigned threshold) {
    unsigned h = i / 2 + seed;
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    h ^= h >> 16;
    return (i % 2 ? h >> 16 : h & 0xffff) >= threshold;
  };
  Numbers numbers(5);
  for (const unsigned count : {1u, 2u, 7u, 1001u}) {
    const unsigned seed = 0xfffffff0u + count, threshold = 20000;  // the seed wraps around
    const auto x = numbers.template many<T>(count);
    auto y = unwritten<T>(count);
    gpu::launch({2}, {64}, [&] { kernels::dropped::dropped<T>(x.data(), y.data(), seed, threshold, count); });
    for (unsigned i = 0; i < count; ++i)
      EXPECT_EQ(wide(y[i]), kept(i, seed, threshold) ? wide(x[i]) : 0) << i << " of " << count;
  }
}

}  // namespace
}  // namespace apus::test
