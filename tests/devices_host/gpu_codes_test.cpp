// SPDX-License-Identifier: Apache-2.0
// Quantised weights as an NVIDIA GPU keeps them: packed, made plain and multiplied by its kernels, against the numbers
// of their formats.
#include <array>
#include <memory>
#include <random>
#include <span>

#include "devices/cuda/code_order.h"
#include "gguf/slice.h"
#include "quant/awq.h"
#include "quant/bnb4.h"
#include "quant/fp8.h"
#include "quant/ggml.h"
#include "quant/gptq.h"
#include "quant/hqq.h"
#include "quant/int8.h"
#include "tests/devices_host/gpu_kernels.h"

namespace apus::kernels::codes {
#include "devices/cuda/kernels/codes.cu"
}

namespace apus::test {
namespace {

using cuda::CodeOrder;
using Matrix = std::shared_ptr<const quant::Matrix>;

struct CodedWeight {
  const char* name;
  double rounding;  // of scales, zeros and leasts that f16 does not hold: a share of the largest number
  Matrix matrix;
};

std::vector<CodedWeight> coded_weights(quant::Shape shape) {
  Numbers numbers(1);
  const std::vector<float> wide = numbers.many<float>(static_cast<size_t>(shape.count()), 0.05);
  const std::span<const float> w(wide);
  std::vector<CodedWeight> all;
  const auto add = [&](const char* name, double rounding, Matrix matrix) {
    all.push_back({name, rounding, std::move(matrix)});
  };
  add("nf4", 0x1p-11, quant::open_bnb4({"layer", quant::quantise_bnb4(w, shape, {.block = 32})}, shape));
  add("fp4", 0x1p-11, quant::open_bnb4({"layer", quant::quantise_bnb4(w, shape, {.nf4 = false, .block = 32})}, shape));
  add("int8", 0, quant::open_bnb_int8({"layer", quant::quantise_bnb_int8(w, shape)}, shape));
  for (const int64_t bits : {4, 8}) {
    const quant::GptqForm form{.bits = bits, .group = 32};
    add(bits == 4 ? "gptq 4" : "gptq 8", 0,
        quant::open_gptq({"layer", pack_gptq(round_to_integers(w, shape, form, false), shape, form)}, shape, form));
    const quant::HqqForm hqq{.bits = bits, .group = 32, .axis = 1};
    add(bits == 4 ? "hqq 4" : "hqq 8", 0x1p-10,
        quant::open_hqq({"layer", quant::quantise_hqq(w, shape, hqq, false)}, shape, hqq));
  }
  add("awq", 0, quant::open_awq({"layer", pack_awq(quant::round_to_awq(w, shape, 32), shape)}, shape, 32));
  add("fp8 blocks", 0x1p-11, quant::open_fp8({"layer", quant::quantise_fp8(w, shape, {})}, shape, {}));
  add("fp8 rows", 0, quant::open_fp8({"layer", quant::quantise_fp8_rows(w, shape)}, shape, {}));
  return all;
}

// Blocks of any bytes, but for scales, which are small numbers. `halves`: how many of two bytes begin at `at`.
struct GgmlBlocks {
  const char* name;
  GgmlType type;
  int64_t at, halves;
};
constexpr GgmlBlocks kGgml[] = {
    {"q4_0", GgmlType::Q4_0, 0, 1}, {"q4_1", GgmlType::Q4_1, 0, 2}, {"q5_0", GgmlType::Q5_0, 0, 1},
    {"q5_1", GgmlType::Q5_1, 0, 2}, {"q8_0", GgmlType::Q8_0, 0, 1}, {"iq4_nl", GgmlType::IQ4_NL, 0, 1},
    {"q4_k", GgmlType::Q4_K, 0, 2}, {"q5_k", GgmlType::Q5_K, 0, 2}, {"q6_k", GgmlType::Q6_K, 208, 1}};

Matrix ggml_matrix(const GgmlBlocks& blocks, quant::Shape shape, std::vector<std::byte>& held) {
  const GgmlForm& form = ggml_form(blocks.type);
  std::mt19937 random(2);
  held.resize(static_cast<size_t>(ggml_bytes(form, shape.count())));
  for (std::byte& b : held) b = static_cast<std::byte>(random());
  for (size_t block = 0; block < held.size(); block += static_cast<size_t>(form.bytes))
    for (int64_t i = 0; i < blocks.halves; ++i) {
      const uint16_t half = float_to_f16(static_cast<float>(random() % 1000) * 1e-5F);
      std::memcpy(&held[block + static_cast<size_t>(blocks.at + 2 * i)], &half, 2);
    }
  GgufSlice slice{.shape = {shape.rows, shape.columns}, .rows = shape.rows, .width = shape.columns};
  slice.parts = {{blocks.type, held.data(), std::ssize(held), shape.rows}};
  return quant::open_ggml(nullptr, slice);
}

// Packed, at an address that kernels take.
struct Packed {
  explicit Packed(const quant::Matrix& matrix, bool exact = false) : order(CodeOrder::of(matrix, exact)) {
    if (!order) return;
    held.resize(static_cast<size_t>(order->bytes / 64));
    order->pack(matrix, held[0].bytes, [](int64_t count, const auto& f) { f(0, count / 2), f(count / 2, count); });
    const cuda::KernelCodes from = order->at(held[0].bytes);
    static_assert(sizeof codes == sizeof from);
    std::memcpy(&codes, &from, sizeof codes);
  }
  struct alignas(64) Line {
    uint8_t bytes[64];
  };
  std::optional<CodeOrder> order;
  std::vector<Line> held;
  kernels::codes::Codes codes;
};

template <class T>
struct alignas(16) Sixteen {
  T at[16 / sizeof(T)];
};
// Numbers at an address that kernels take; one more than a pack behind them, which nobody may write.
template <class T>
std::vector<T> from_packs(const std::vector<Sixteen<T>>& packs, size_t count) {
  const T* const first = packs[0].at;
  return {first, first + count};
}
template <class T>
std::vector<Sixteen<T>> packs_of(const std::vector<T>& from) {
  std::vector<Sixteen<T>> out(from.size() * sizeof(T) / 16 + 1);
  std::memcpy(static_cast<void*>(out.data()), from.data(), from.size() * sizeof(T));
  return out;
}

std::vector<float> numbers_of(const quant::Matrix& m) {
  std::vector<float> out(static_cast<size_t>(m.shape().count()));
  m.dequantise(0, m.shape().rows, out.data());
  return out;
}

// The kernel that is made for such scales.
template <class F>
void by_scales(const CodeOrder& order, const F& run) {
  const int scales = (order.zeros || order.leasts ? 1 : 0) + (order.wide ? 2 : 0);
  if (scales == 0) run(std::integral_constant<int, 0>());
  if (scales == 1) run(std::integral_constant<int, 1>());
  if (scales == 2) run(std::integral_constant<int, 2>());
  if (scales == 3) run(std::integral_constant<int, 3>());
}

// x [m, columns] as rows of whole stretches.
template <class T>
std::vector<Sixteen<T>> whole_stretches(const std::vector<T>& x, const CodeOrder& order) {
  const auto columns = static_cast<size_t>(order.columns),
             filled = static_cast<size_t>(order.stretches * order.stretch());
  std::vector<T> rows(x.size() / columns * filled);
  for (size_t i = 0; i < x.size(); ++i) rows[i / columns * filled + i % columns] = x[i];
  return packs_of(rows);
}

template <class T, int kKind>
struct Kernels {
  const Packed& p;
  const quant::Matrix& matrix;
  const std::vector<float> want = numbers_of(matrix);

  unsigned columns() const { return static_cast<unsigned>(p.order->columns); }
  unsigned rows() const { return static_cast<unsigned>(p.order->rows); }

  std::vector<T> plain(unsigned first, unsigned count) const {
    auto y = packs_of(unwritten<T>(count * columns()));
    gpu::launch({(count + 15) / 16}, {64}, [&] { kernels::codes::plain<T, kKind>(p.codes, first, count, y[0].at); });
    return from_packs(y, count * columns());
  }

  void check_plain(double rounding) const {
    const std::vector<T> all = plain(0, rows());
    double most = 0;
    for (const float w : want) most = std::max(most, std::abs(static_cast<double>(w)));
    expect_close(all, std::vector<double>(want.begin(), want.end()), kRounding<T> + 0x1p-11, most * rounding, "plain");
    size_t other = 0;
    for (size_t i = 0; i < all.size(); ++i) other += all[i].bits != as<T>(want[i]).bits;
    EXPECT_LE(other, rounding == 0 ? all.size() / 1000 : all.size()) << "of " << all.size();

    const std::vector<T> some = plain(16, 9);
    for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i].bits, all[16 * columns() + i].bits) << i;

    const long long ids[] = {5, rows() - 1, 0, 17};
    auto y = packs_of(unwritten<T>(4 * columns()));
    gpu::launch({4}, {32}, [&] { kernels::codes::rows_of<T, kKind>(p.codes, ids, y[0].at); });
    const std::vector<T> got = from_packs(y, 4 * columns());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i].bits, all[static_cast<size_t>(ids[i / columns()]) * columns() + i % columns()].bits) << i;
  }

  template <int kTiles>
  void check_product(unsigned m, int together, unsigned warps) const {
    Numbers numbers(3);
    const auto x = numbers.many<T>(m * columns()), bias = numbers.many<T>(rows());
    const unsigned filled = static_cast<unsigned>(p.order->stretches * p.order->stretch());
    const auto packs = whole_stretches(x, *p.order);
    auto y = unwritten<T>(m * rows());
    const unsigned tiles = (rows() + 15) / 16;
    by_scales(*p.order, [&](auto scales) {
      gpu::launch({(tiles + together - 1) / together, (m + 8 * kTiles - 1) / (8 * kTiles)}, {32 * warps}, [&] {
        kernels::codes::product<T, kKind, scales, kTiles>(p.codes, packs[0].at, filled, bias.data(), y.data(),
                                                          static_cast<int>(m), together);
      });
    });
    double miss = 0, all = 0;
    for (unsigned i = 0; i < m; ++i)
      for (unsigned row = 0; row < rows(); ++row) {
        double sum = wide(bias[row]);
        for (unsigned c = 0; c < columns(); ++c) sum += wide(x[i * columns() + c]) * want[row * columns() + c];
        const double got = wide(y[i * rows() + row]);
        miss += (got - sum) * (got - sum), all += sum * sum;
      }
    // One rounding of the result; of the book's numbers and, for FP8 and others with scales that f16 rounds, of those.
    EXPECT_LT(std::sqrt(miss / all), kRounding<T>) << m << " rows";
  }
};

// The weight as several matrices, each of which multiplies a run of x.
template <class T, int kKind, int kTiles>
void check_runs(const Kernels<T, kKind>& k, double rounding, const std::vector<long long>& ends, int together) {
  const auto experts = static_cast<unsigned>(ends.size()), one = k.rows() / experts, columns = k.columns();
  const auto m = static_cast<unsigned>(ends.back());
  const unsigned filled = static_cast<unsigned>(k.p.order->stretches * k.p.order->stretch());
  const auto x = Numbers(4).many<T>(m * columns);
  const auto packs = whole_stretches(x, *k.p.order);
  auto y = unwritten<T>(m * one);
  const unsigned tiles = one / 16;
  by_scales(*k.p.order, [&](auto scales) {
    gpu::launch({(tiles + together - 1) / together, m}, {32 * 8}, [&] {
      kernels::codes::product_in_runs<T, kKind, scales, kTiles>(k.p.codes, packs[0].at, filled, ends.data(),
                                                                static_cast<int>(experts), static_cast<int>(one),
                                                                y.data(), together);
    });
  });
  double miss = 0, all = 0;
  unsigned expert = 0;
  for (unsigned i = 0; i < m; ++i) {
    while (ends[expert] <= i) ++expert;
    for (unsigned row = 0; row < one; ++row) {
      double sum = 0;
      for (unsigned c = 0; c < columns; ++c)
        sum += wide(x[i * columns + c]) * k.want[(expert * one + row) * columns + c];
      const double got = wide(y[i * one + row]);
      miss += (got - sum) * (got - sum), all += sum * sum;
    }
  }
  EXPECT_LT(std::sqrt(miss / all), kRounding<T> + rounding) << m << " rows of " << experts << " experts";
}

template <class T, int kKind>
void check_kind(const Packed& p, const CodedWeight& w) {
  const Kernels<T, kKind> kernels{p, *w.matrix};
  kernels.check_plain(w.rounding);
  kernels.template check_product<1>(1, 1, 4);
  kernels.template check_product<1>(7, 2, 4);
  kernels.template check_product<2>(13, 4, 8);
  kernels.template check_product<4>(35, 1, 3);
  if (p.order->rows % 48 != 0) return;
  check_runs<T, kKind, 1>(kernels, w.rounding, {3, 3, 12},
                          1);  // of 32 rows; one without any of x, one with more than eight
  check_runs<T, kKind, 2>(kernels, w.rounding, {1, 20}, 2);  // of 48: the last block has one tile of two
  check_runs<T, kKind, 4>(kernels, w.rounding, {0, 33, 34}, 4);
}

template <class T>
void check(const CodedWeight& w) {
  SCOPED_TRACE(std::string(w.name) + " " + std::to_string(w.matrix->shape().rows));
  const Packed p(*w.matrix);
  ASSERT_TRUE(p.order) << "it has no order";
  const std::array kinds = {check_kind<T, 0>, check_kind<T, 1>, check_kind<T, 2>, check_kind<T, 3>};
  kinds[static_cast<size_t>(p.order->kind)](p, w);
}

// Rows that end within a tile, columns that end within a stretch.
constexpr quant::Shape kFormats = {96, 608}, kGguf = {40, 768};

TEST(GpuCodes, Bf16) {
  for (const CodedWeight& w : coded_weights(kFormats)) check<bf16>(w);
}
TEST(GpuCodes, F16) {
  for (const CodedWeight& w : coded_weights(kFormats)) check<f16>(w);
}
TEST(GpuCodes, Gguf) {
  for (const GgmlBlocks& blocks : kGgml) {
    std::vector<std::byte> held;
    check<bf16>({blocks.name, 0x1p-10, ggml_matrix(blocks, kGguf, held)});
  }
}

template <int kKind>
void check_f32(const Packed& p, const CodedWeight& w) {
  const Kernels<float, kKind> kernels{p, *w.matrix};
  const std::vector<double> want(kernels.want.begin(), kernels.want.end());
  expect_close(kernels.plain(0, kernels.rows()), want, 1e-6, 1e-8, "plain");
}

// Weights in f32 are as the format has them.
TEST(GpuCodes, F32) {
  for (const CodedWeight& w : coded_weights(kFormats)) {
    SCOPED_TRACE(w.name);
    const Packed p(*w.matrix, /*exact=*/true);
    ASSERT_TRUE(p.order);
    const std::array kinds = {check_f32<0>, check_f32<1>, check_f32<2>, check_f32<3>};
    kinds[static_cast<size_t>(p.order->kind)](p, w);
  }
}

// Columns that are no whole packs of sixteen bytes.
TEST(GpuCodes, NoOrderForOddRows) {
  const quant::Shape shape{32, 36};
  const std::vector<float> wide(static_cast<size_t>(shape.count()), 1.0F);
  const auto int8 = quant::open_bnb_int8({"layer", quant::quantise_bnb_int8(wide, shape)}, shape);
  EXPECT_FALSE(CodeOrder::of(*int8, false));
}

}  // namespace
}  // namespace apus::test
