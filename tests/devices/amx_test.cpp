// SPDX-License-Identifier: Apache-2.0
// AMX tiles, real or emulated, against the manual's sums by scalars, and weights where they lie against packed ones,
// bit for bit. What holds for every instruction set is in cpu_kernels_test.cpp, which runs AMX here as well.
#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <optional>
#include <vector>

#include "devices/cpu/kernels/isa.h"
#include "devices/cpu/kernels/kernels.h"
#include "devices/cpu/ops/tensors.h"
#include "ops/ops.h"
#include "tests/devices/amx_emulation.h"

namespace apus::cpu {
namespace {

float wide(bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
float fused(float a, float b, float c) { return flushed(std::fma(flushed(a), flushed(b), c)); }

// What tiles make of two rows: of each 32 elements even and odd ones are summed apart.
float tile_sum(const bf16* a, const bf16* b, int64_t k) {
  float sum = 0;
  for (int64_t begin = 0; begin < k; begin += 32) {
    float even = 0, odd = 0;
    for (int64_t i = begin; i < std::min(k, begin + 32); i += 2) {
      even = fused(wide(a[i]), wide(b[i]), even);
      if (i + 1 < k) odd = fused(wide(a[i + 1]), wide(b[i + 1]), odd);
    }
    sum = flushed(sum + flushed(even + odd));
  }
  return sum;
}

class Amx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test::AmxEmulation::possible()) emulation_.emplace();
    if (machine_isa() < Isa::Amx) GTEST_SKIP() << "no AMX here, nor AVX-512 to emulate it with";
    before_ = cap_isa(Isa::Amx);
  }
  void TearDown() override {
    if (machine_isa() >= Isa::Amx) cap_isa(before_);
  }

  std::optional<test::AmxEmulation> emulation_;
  Isa before_ = Isa::Generic;
};

at::Tensor random_bf16(int64_t rows, int64_t columns) { return at::randn({rows, columns}).to(at::kBFloat16); }

TEST_F(Amx, SumsAreTheManuals) {
  const int64_t m = 51, n = 45, k = 77;
  const at::Tensor x = random_bf16(m, k), w = random_bf16(n, k);
  data<bf16>(x)[3] = 0x0001, data<bf16>(w)[k + 3] = 0x8040;  // denormals
  // Products too small for f32.
  for (int64_t i = 0; i < k; ++i) data<bf16>(x)[5 * k + i] = 0x1000, data<bf16>(w)[7 * k + i] = 0x0fff;
  const at::Tensor b = at::randn({n}).to(at::kBFloat16), y = ops::packed_linear(x, ops::pack_linear(w, true), b, n);
  if (emulation_) {
    EXPECT_GT(test::AmxEmulation::products, 0);
  }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const float total = tile_sum(data<bf16>(x) + i * k, data<bf16>(w) + j * k, k) + wide(data<bf16>(b)[j]);
      const at::Tensor rounded = at::scalar_tensor(total).to(at::kBFloat16);
      ASSERT_EQ(data<bf16>(y)[i * n + j], *data<bf16>(rounded)) << i << " " << j;
    }
}

TEST_F(Amx, InPlaceIsBitForBitPacked) {
  const int64_t shapes[][2] = {{1, 1}, {2, 31}, {33, 32}, {64, 33}, {65, 47}, {96, 300}, {1000, 70}, {1120, 16}};
  for (const auto& [k, n] : shapes) {
    const at::Tensor w = random_bf16(n, k), b = at::randn({n}).to(at::kBFloat16);
    const at::Tensor packed = ops::pack_linear(w), in_place = ops::pack_linear(w, true);
    ASSERT_TRUE(in_place.is_alias_of(w));
    for (const int64_t m : {1, 2, 15, 16, 17, 32, 33, 64, 97, 140}) {
      const at::Tensor x = random_bf16(m, k);
      EXPECT_TRUE(ops::packed_linear(x, in_place, b, n).equal(ops::packed_linear(x, packed, b, n)))
          << m << " x " << k << " x " << n;
    }
  }
}

// More than one block of rows (512), of depth (512) and of outputs (64 for one thread here).
TEST_F(Amx, RowsDoNotSeeEachOther) {
  const int64_t k = 1044, n = 400, most = 560;
  const at::Tensor x = random_bf16(most, k), w = random_bf16(n, k), in_place = ops::pack_linear(w, true);
  const at::Tensor all = ops::packed_linear(x, in_place, {}, n);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  for (const int64_t m : {1, 3, 16, 40, 64, 128, 513})
    EXPECT_TRUE(ops::packed_linear(x.narrow(0, most - m, m), in_place, {}, n).equal(all.narrow(0, most - m, m)))
        << m << " rows";
  at::set_num_threads(threads);
}

// Weights that end where memory ends, and begin anywhere.
TEST_F(Amx, NothingIsReadBehindTheWeights) {
  constexpr size_t kPage = 4096, kSize = 64 * kPage;
  auto* memory =
      static_cast<char*>(mmap(nullptr, kSize + 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  ASSERT_EQ(mprotect(memory, kPage, PROT_NONE) | mprotect(memory + kPage + kSize, kPage, PROT_NONE), 0);
  const int64_t shapes[][2] = {{45, 37}, {64, 33}, {31, 7}, {520, 50}, {96, 32}, {1, 1}};
  for (const auto& [k, n] : shapes)
    for (const bool at_end : {true, false}) {
      const at::Tensor original = random_bf16(n, k);
      char* to = at_end ? memory + kPage + kSize - original.nbytes() : memory + kPage;
      std::memcpy(to, original.data_ptr(), original.nbytes());
      const at::Tensor w = at::from_blob(to, {n, k}, at::kBFloat16);
      for (const int64_t m : {1, 20, 130}) {
        const at::Tensor x = random_bf16(m, k);
        EXPECT_TRUE(ops::packed_linear(x, ops::pack_linear(w, true), {}, n)
                        .equal(ops::packed_linear(x, ops::pack_linear(original), {}, n)));
      }
    }
  munmap(memory, kSize + 2 * kPage);
}

TEST_F(Amx, ABrokenMachineIsFoundOut) {
  EXPECT_TRUE(amx_multiplies());
  if (!emulation_) return;
  test::AmxEmulation::wrong = true;
  EXPECT_FALSE(amx_multiplies());
  test::AmxEmulation::wrong = false;
}

}  // namespace
}  // namespace apus::cpu
