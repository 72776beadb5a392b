// SPDX-License-Identifier: Apache-2.0
// The inner loops of every instruction set that this machine has, on plain memory against loops in f64. No tensor
// library: this program is also built for another processor and run in an emulator (scripts/arm64).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/half.h"
#include "devices/cpu/kernels/isa.h"
#include "devices/cpu/kernels/kernels.h"

namespace apus::cpu {
namespace {

float wide(float x) { return x; }
float wide(bf16 x) { return bf16_to_float(x); }
template <class E>
E narrow(float x) {
  if constexpr (sizeof(E) == 2) return float_to_bf16(x);
  return x;
}
// Of sums in f32, and of one rounding to the type.
template <class E>
constexpr double kRounding = sizeof(E) == 2 ? 4e-3 : 2e-6;

// ||a - b|| / ||b||
template <class A, class B>
double error(const std::vector<A>& a, const std::vector<B>& b) {
  double off = 0, size = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = wide(a[i]), y = static_cast<double>(b[i]);
    off += (x - y) * (x - y), size += y * y;
  }
  return std::sqrt(off / size);
}

class KernelLevels : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (GetParam() > machine_isa()) GTEST_SKIP() << "this machine has no " << isa_name(GetParam());
    before_ = cap_isa(GetParam());
    capped_ = true;
  }
  void TearDown() override {
    if (capped_) cap_isa(before_);
  }
  template <class E>
  std::vector<E> normal(int64_t n) {
    std::vector<E> all(static_cast<size_t>(n));
    for (E& x : all) x = narrow<E>(normal_(random_));
    return all;
  }
  std::vector<uint8_t> bytes(int64_t n) {
    std::vector<uint8_t> all(static_cast<size_t>(n));
    for (uint8_t& x : all) x = static_cast<uint8_t>(random_());
    return all;
  }
  template <class E>
  void check_products();
  template <class E>
  void check_rows();
  template <class E>
  void check_softmax();

  std::mt19937 random_{7};

 private:
  std::normal_distribution<float> normal_;
  Isa before_ = Isa::Generic;
  bool capped_ = false;
};

// a [m][k] * b [n][k]', in f64.
template <class E>
std::vector<double> product(int64_t m, int64_t n, int64_t k, const E* a, int64_t lda, const E* b) {
  std::vector<double> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t d = 0; d < k; ++d)
        c[static_cast<size_t>(i * n + j)] += static_cast<double>(wide(a[i * lda + d])) * wide(b[j * k + d]);
  return c;
}

// Sanitizers put checks between a product and the sum that it is added to, and a compiler may then round twice in one
// function and once in another.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFusesEverywhere = false;
#elif defined(__has_feature)
constexpr bool kFusesEverywhere = !__has_feature(address_sanitizer);
#else
constexpr bool kFusesEverywhere = true;
#endif

template <class E>
void KernelLevels::check_products() {
  const RowKernels<E>& kernel = row_kernels<E>();
  const Multiplying guard;
  std::vector<float> space(static_cast<size_t>(kDotStretch * kDotBatch));
  for (const int64_t m : {1, 5, 12, 13, 40})
    for (const int64_t k : {1, 31, 64, 100, 1100})
      for (const int64_t n : {32, 17}) {
        SCOPED_TRACE(::testing::Message() << m << " " << k << " " << n);
        const int64_t depth = padded_depth<E>(k);
        std::vector<E> a = normal<E>(m * depth), b = normal<E>(n * k), turned(static_cast<size_t>(n * k));
        std::vector<const E*> columns, rows;
        for (int64_t j = 0; j < n; ++j) columns.push_back(b.data() + j * k);
        columns.resize(32);
        for (int64_t d = 0; d < k; ++d) {
          rows.push_back(turned.data() + d * n);
          for (int64_t j = 0; j < n; ++j) turned[static_cast<size_t>(d * n + j)] = b[static_cast<size_t>(j * k + d)];
        }
        std::vector<E> panel(static_cast<size_t>(panel_size<E>(k)), E(1)), same = panel;
        kernel.pack_columns(columns.data(), n, k, panel.data());
        kernel.pack_rows(rows.data(), k, n, same.data());
        EXPECT_EQ(panel, same);

        const std::vector<double> right = product(m, n, k, a.data(), depth, b.data());
        std::vector<float> c(static_cast<size_t>(m * 32), 1), alone(32, 1);
        kernel.multiply(m, k, a.data(), depth, panel.data(), c.data(), 32, false, nullptr);
        kernel.multiply(1, k, a.data() + (m - 1) * depth, depth, panel.data(), alone.data(), 32, false, nullptr);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), c.end() - 32));
        std::vector<float> found;
        for (int64_t i = 0; i < m; ++i) found.insert(found.end(), c.begin() + i * 32, c.begin() + i * 32 + n);
        EXPECT_LT(error(found, right), 2e-6);
        if (kernel.widen_panel) {
          std::vector<float> x(static_cast<size_t>(m * depth)), w(panel.size()), again(c.size());
          kernel.widen(m * depth, a.data(), x.data());
          kernel.widen_panel(depth, panel.data(), w.data());
          kernels().f32.multiply(m, depth, x.data(), depth, w.data(), again.data(), 32, false, nullptr);
          EXPECT_EQ(again, c);
        }
        found.assign(static_cast<size_t>(m * n), 0);
        kernel.dots(m, n, k, a.data(), depth, b.data(), k, found.data(), n, space.data());
        EXPECT_LT(error(found, right), 2e-6);
        kernel.dots(1, n, k, a.data() + (m - 1) * depth, depth, b.data(), k, alone.data(), n, space.data());
        if (kFusesEverywhere) EXPECT_TRUE(std::equal(alone.begin(), alone.begin() + n, found.end() - n));
      }
}

TEST_P(KernelLevels, ProductsOfPanelsAndOfRowsInPlace) { check_products<bf16>(), check_products<float>(); }

template <class E>
void KernelLevels::check_rows() {
  const RowKernels<E>& kernel = row_kernels<E>();
  for (const int64_t n : {1, 3, 4, 15, 97, 896}) {
    SCOPED_TRACE(n);
    const std::vector<E> x = normal<E>(n), up = normal<E>(n), weight = normal<E>(n);
    std::vector<E> y(x.size()), back(x.size());
    std::vector<float> plain(x.size());
    std::vector<double> normed(x.size()), gated(x.size());
    double squares = 0;
    for (const E v : x) squares += static_cast<double>(wide(v)) * wide(v);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = wide(x[i]);
      normed[i] = wide(narrow<E>(static_cast<float>(v * inverse))) * wide(weight[i]);
      gated[i] = wide(narrow<E>(static_cast<float>(v / (1 + std::exp(-v))))) * wide(up[i]);
    }
    kernel.rms_norm(n, x.data(), nullptr, nullptr, weight.data(), 1e-6f, y.data());
    EXPECT_LT(error(y, normed), kRounding<E>);
    kernel.swiglu(n, x.data(), up.data(), y.data());
    EXPECT_LT(error(y, gated), kRounding<E>);
    EXPECT_NEAR(kernel.sum_of_squares(n, x.data()), squares, 1e-9 * squares);
    kernel.widen(n, x.data(), plain.data());
    kernel.narrow(n, plain.data(), 1, back.data());
    EXPECT_EQ(back, x);
    plain[0] = std::numeric_limits<float>::quiet_NaN(), plain.back() = std::numeric_limits<float>::infinity();
    kernel.narrow(n, plain.data(), 1, back.data());
    EXPECT_TRUE(std::isinf(wide(back.back())) && (n == 1 || std::isnan(wide(back[0]))));
  }
}

TEST_P(KernelLevels, Rows) { check_rows<bf16>(), check_rows<float>(); }

template <class E>
void KernelLevels::check_softmax() {
  constexpr int64_t kColumns = 128, kHead = 64;
  const int32_t low[] = {0, 0, 5, 100, 127}, high[] = {128, 1, 90, 128, 128};
  std::vector<float> scores = normal<float>(5 * kColumns), given = scores;
  std::vector<float> maximum(5, -std::numeric_limits<float>::infinity()), sum(5), o(5 * kHead);
  std::vector<E> p(5 * kColumns);
  std::vector<double> right(p.size()), sums(5);
  row_kernels<E>().softmax_block(5, kColumns, low, high, 0.3f, scores.data(), kColumns, maximum.data(), sum.data(),
                                 o.data(), kHead, kHead, p.data(), kColumns);
  for (int64_t i = 0; i < 5; ++i) {
    const float* row = given.data() + i * kColumns;
    const double top = *std::max_element(row + low[i], row + high[i]);
    for (int64_t j = low[i]; j < high[i]; ++j) {
      right[static_cast<size_t>(i * kColumns + j)] = std::exp2((row[j] - top) * 0.3);
      sums[static_cast<size_t>(i)] += right[static_cast<size_t>(i * kColumns + j)];
    }
  }
  EXPECT_LT(error(p, right), kRounding<E>);
  EXPECT_LT(error(sum, sums), 2e-6);
}

TEST_P(KernelLevels, BlocksOfSoftmax) { check_softmax<bf16>(), check_softmax<float>(); }

TEST_P(KernelLevels, EveryCodeIsItsNumber) {
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
  std::vector<bf16> y(256);
  kernels().row8(256, all.data(), 1, y.data());
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(wide(y[i]), static_cast<float>(static_cast<int8_t>(i))) << i;
  kernels().row_e4m3(256, all.data(), 256, y.data());
  for (int i = 0; i < 256; ++i) {
    const int exponent = i >> 3 & 15, mantissa = i & 7;
    if (exponent == 15 && mantissa == 7) continue;  // no number
    const float size = exponent ? std::ldexp(8.0f + static_cast<float>(mantissa), exponent - 10)
                                : std::ldexp(static_cast<float>(mantissa), -9);
    EXPECT_EQ(wide(y[static_cast<size_t>(i)]), i & 128 ? -size : size) << i;
  }
}

TEST_P(KernelLevels, CodesOfGroups) {
  constexpr int64_t kColumns = 512;
  const std::vector<uint8_t> codes = bytes(kColumns + 64);
  const std::vector<float> book = normal<float>(16);
  for (const bool is_wide : {false, true})
    for (const int64_t group : {32, 64, 512})
      for (int parts = 0; parts < 4; ++parts) {
        SCOPED_TRACE(::testing::Message() << is_wide << " " << group << " " << parts);
        std::array<std::vector<float>, 3> numbers;  // scales, zeros, leasts
        std::array<std::vector<uint16_t>, 3> halves;
        for (size_t i = 0; i < 3; ++i) {
          numbers[i] = normal<float>(64);
          if (i == 0) numbers[i][1] = 3e-6f;  // below f16's normal ones
          for (float& x : numbers[i]) x = f16_to_float(float_to_f16(x)), halves[i].push_back(float_to_f16(x));
        }
        const auto at = [&](size_t i) {
          return is_wide ? static_cast<const void*>(numbers[i].data()) : halves[i].data();
        };
        const CodeScales scales{at(0), parts & 1 ? at(1) : nullptr, parts & 2 ? at(2) : nullptr, is_wide, 0.5f, 0.25f,
                                group};
        const auto right = [&](int64_t column, double value) {
          const auto g = static_cast<size_t>(column / group);
          return (value - (parts & 1 ? numbers[1][g] : 0)) * (0.5 * numbers[0][g]) -
                 (parts & 2 ? 0.25 * numbers[2][g] : 0);
        };
        std::vector<bf16> y(kColumns);
        std::vector<double> four, eight;
        for (int64_t c = 0; c < kColumns; ++c) {
          const int both = codes[static_cast<size_t>(c / 8 * 4 + c % 4)];
          four.push_back(right(c, book[static_cast<size_t>(c % 8 < 4 ? both & 15 : both >> 4)]));
          eight.push_back(right(c, static_cast<int8_t>(codes[static_cast<size_t>(c)])));
        }
        kernels().codes4(0, kColumns, codes.data(), scales, book.data(), y.data());
        EXPECT_LT(error(y, four), 4e-3);
        kernels().codes8(0, kColumns, codes.data(), scales, y.data());
        EXPECT_LT(error(y, eight), 4e-3);
      }
}

// Of row j and column d, as CodePanel describes it.
int code_of(const std::vector<uint8_t>& codes, int bits, int64_t d, int64_t j) {
  const auto byte = [&](int64_t step) { return int{codes[static_cast<size_t>(step * 128 + j * 4 + d % 4)]}; };
  const auto half = [&](int both) { return d % 8 < 4 ? both & 15 : both >> 4; };
  if (bits == 8) return static_cast<int8_t>(byte(d / 4));
  if (bits == 4) return half(byte(d / 8));
  const int64_t sixteen = d / 16 * 3;
  return half(byte(sixteen + d % 16 / 8)) | (byte(sixteen + 2) >> d % 16 / 4 * 2 & 3) << 4;
}

// Where scales are powers of two, results are whole numbers: the same on every level, to the bit.
TEST_P(KernelLevels, ProductsOfEightBitsAreExact) {
  for (const int64_t m : {1, 2, 3, 7, 8, 9, 17})
    for (const int64_t k : {32, 96, 608})
      for (const int64_t group : {16, 32, 64})
        for (const int bits : {4, 6, 8})
          for (const bool booked : {false, true})
            for (const bool largest : {false, true}) {  // no sum may overflow
              if ((bits != 4 && booked) || (bits == 4 && group == 16)) continue;
              SCOPED_TRACE(::testing::Message() << m << " " << k << " " << group << " " << bits << booked << largest);
              std::vector<bf16> x(static_cast<size_t>(m * k));
              for (bf16& v : x) v = float_to_bf16(largest ? -127.0f : static_cast<float>(random_() % 255) - 127);
              for (int64_t c = 0; c < m * k; c += 32) x[static_cast<size_t>(c)] = float_to_bf16(127);
              std::vector<int8_t> number(x.size());
              std::vector<float> scale(x.size() / 32);
              std::vector<int32_t> sum(x.size() / 16);
              for (int64_t i = 0; i < m; ++i)
                kernels().round_int8(k, x.data() + i * k, number.data() + i * k, scale.data() + i * k / 32,
                                     sum.data() + i * k / 16);
              for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(static_cast<float>(number[i]), wide(x[i]));
              for (const float s : scale) ASSERT_EQ(s, 1.0f);
              std::vector<uint8_t> codes = bytes(32 * k * bits / 8);
              if (largest) std::fill(codes.begin(), codes.end(), uint8_t(bits == 8 ? 0x80 : 0xff));
              int8_t book[16];
              for (int8_t& b : book) b = static_cast<int8_t>(largest ? -127 : static_cast<int>(random_() % 255) - 127);
              const std::vector<float> scales(static_cast<size_t>((k + group - 1) / group * 32 + 16), 0.5f);
              const CodePanel w{codes.data(),
                                {scales.data(), nullptr, nullptr, true, 1.0f, 0, group},
                                k,
                                bits,
                                booked ? book : nullptr,
                                2.0f,
                                booked ? 0 : bits == 8 ? 3 : bits == 6 ? -32 : -8};
              std::vector<float> c(static_cast<size_t>(m * 32));
              kernels().dots_int8(m, {number.data(), scale.data(), sum.data(), k}, w, c.data());
              for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < 32; ++j) {
                  int64_t right = 0;
                  for (int64_t d = 0; d < k; ++d) {
                    const int code = code_of(codes, bits, d, j);
                    right += number[static_cast<size_t>(i * k + d)] * ((booked ? book[code] : code) + w.offset);
                  }
                  ASSERT_EQ(c[static_cast<size_t>(i * 32 + j)], static_cast<float>(right)) << i << " " << j;
                }
            }
}

// The first level's codes, but where a value lies on the border between two.
TEST_P(KernelLevels, MomentsOfAByte) {
  struct State {
    std::vector<int8_t> mean;
    std::vector<uint8_t> square;
    std::vector<float> mean_scale, square_scale, master;
    std::vector<bf16> param;
  };
  constexpr int64_t kCount = 1024;
  const State begin{std::vector<int8_t>(kCount, 3), bytes(kCount),       {0.5f, 0.4f, 0.3f, 0.2f}, {1, 2, 3, 4},
                    normal<float>(kCount),          normal<bf16>(kCount)};
  const std::vector<bf16> grad = normal<bf16>(kCount);
  const auto step = [&](State s, const Kernels& by) {
    by.adamw_moments(kCount, {true, s.param.data(), grad.data(), s.master.data()},
                     {s.mean.data(), s.square.data(), s.mean_scale.data(), s.square_scale.data(), 777, 999, 4242, true},
                     {0.01f, 0.9f, 0.99f, 1e-8f, 0.1f, 0.3f, 0.2f, 0.5f});
    return s;
  };
  const State found = step(begin, kernels()), right = step(begin, kGenericKernels);
  int64_t off = 0;
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_LE(std::abs(found.mean[i] - right.mean[i]), 1);
    EXPECT_LE(std::abs(found.square[i] - right.square[i]), 1);
    off += found.mean[i] != right.mean[i] || found.square[i] != right.square[i];
  }
  EXPECT_LT(off, 8);
  EXPECT_LT(error(found.master, right.master), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Levels, KernelLevels, ::testing::ValuesIn(isas()),
                         [](const auto& info) { return std::string(isa_name(info.param)); });

}  // namespace
}  // namespace apus::cpu
