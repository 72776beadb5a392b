// SPDX-License-Identifier: Apache-2.0
// The simulated GPU itself: what it has built in, and that it says what is wrong rather than hang.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/sim/gpu.h"

namespace apus::kernels {
namespace trials {

void sums(const float* x, float* sum) {
  const float all = sum_of_row(x[threadIdx.x]);
  if (threadIdx.x == 0) *sum = all;
}
void left_over(float* out) {
  __shared__ float held[64];
  out[threadIdx.x] = held[threadIdx.x];
  __syncthreads();
  held[threadIdx.x] = 1;
}
void turn_round(const int* x, int* y) {
  __shared__ int held[64];
  held[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = held[63 - threadIdx.x];
}
void lanes(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  out[lane] = __shfl_down_sync(~0u, lane, 4) + 100 * __shfl_sync(~0u, lane, 7);
  const unsigned odd = __ballot_sync(~0u, lane % 2);
  if (odd == 0xaaaaaaaau && __any_sync(~0u, lane == 3) && !__all_sync(~0u, lane > 0)) atomicAdd(out + 32, 1);
}
void products(const bf16* a, const bf16* b, float* sum) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const auto two = [](const bf16* from) { return static_cast<unsigned>(from[0].bits | from[1].bits << 16); };
  unsigned left[4];
  for (int i = 0; i < 4; ++i) left[i] = two(a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8);
  float own[4] = {1, 1, 1, 1};
  multiply(bf16{}, own, left, two(b + g * 16 + 2 * t), two(b + g * 16 + 2 * t + 8));  // b by columns
  for (int i = 0; i < 4; ++i) sum[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = own[i];
}

}  // namespace trials
}  // namespace apus::kernels

namespace apus {
namespace {
using namespace kernels;

std::string problem(gpu::Extent block, const std::function<void()>& kernel) {
  try {
    gpu::launch({2}, block, kernel);
  } catch (const std::runtime_error& e) {
    return e.what();
  }
  return "";
}
bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SimulatedGpu, ThreadsOfABlockAndLanesOfAWarpMeet) {
  std::vector<float> x(96), sum(1);
  for (int i = 0; i < 96; ++i) x[i] = static_cast<float>(i);
  gpu::launch({3}, {96}, [&] { trials::sums(x.data(), sum.data()); });
  EXPECT_EQ(sum[0], 95 * 48);

  std::vector<int> numbers(64), turned(64), shown(33);
  for (int i = 0; i < 64; ++i) numbers[i] = i * i;
  gpu::launch({4}, {64}, [&] { trials::turn_round(numbers.data(), turned.data()); });
  for (int i = 0; i < 64; ++i) EXPECT_EQ(turned[i], (63 - i) * (63 - i));

  gpu::launch({}, {32}, [&] { trials::lanes(shown.data()); });
  for (int i = 0; i < 32; ++i) EXPECT_EQ(shown[i], (i + 4 < 32 ? i + 4 : i) + 700);
  EXPECT_EQ(shown[32], 32);
}

TEST(SimulatedGpu, AWarpMultipliesMatrices) {
  std::vector<bf16> a(256), b(128);
  std::vector<float> sum(128);
  for (int i = 0; i < 256; ++i) set(a[i], static_cast<float>(i % 17 - 8));
  for (int i = 0; i < 128; ++i) set(b[i], static_cast<float>(i % 13 - 6));
  gpu::launch({}, {32}, [&] { trials::products(a.data(), b.data(), sum.data()); });
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float want = 1;
      for (int k = 0; k < 16; ++k) want += to_float(a[row * 16 + k]) * to_float(b[column * 16 + k]);
      EXPECT_EQ(sum[row * 8 + column], want) << row << ", " << column;
    }
}

// What a block leaves behind is not what the next one finds.
TEST(SimulatedGpu, SharedMemoryHoldsNothingAtFirst) {
  std::vector<float> out(64);
  gpu::launch({2}, {64}, [&] { trials::left_over(out.data()); });
  for (const float x : out) EXPECT_TRUE(std::isnan(x));
}

TEST(SimulatedGpu, ThreadsThatWaitForEverAreNamed) {
  const std::string half = problem({64}, [] {
    if (threadIdx.x < 40) __syncthreads();
  });
  EXPECT_TRUE(says(half, "thread (0, 0, 0) waits for ever at __syncthreads (gpu_simulator_test.cpp:")) << half;
  EXPECT_TRUE(says(half, "24 threads have ended")) << half;

  const std::string shuffle = problem({32}, [] {
    if (threadIdx.x != 5) __shfl_xor_sync(~0u, 1.f, 1);
  });
  EXPECT_TRUE(says(shuffle, "waits for ever at __shfl_xor_sync")) << shuffle;
  EXPECT_TRUE(says(shuffle, "1 threads have ended")) << shuffle;

  const std::string mixed = problem({64}, [] {
    if (threadIdx.x < 8)
      __syncwarp();
    else
      __syncthreads();
  });
  EXPECT_TRUE(says(mixed, "__syncwarp") && says(mixed, "__syncthreads")) << mixed;

  const std::string apart = problem({64}, [] {
    if (threadIdx.x < 32)
      __syncthreads();
    else
      __syncthreads();
  });
  EXPECT_TRUE(says(apart, "threads meet at different places")) << apart;
  EXPECT_TRUE(says(problem({16}, [] { __shfl_sync(~0u, 1, 0); }), "whole warps"));
  EXPECT_TRUE(says(problem({2048}, [] {}), "no GPU takes"));
  EXPECT_EQ(problem({64}, [] { __syncthreads(); }), "") << "and goes on afterwards";
}

TEST(SimulatedGpu, NumbersOfTwoBytes) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float half = to_float(f16{static_cast<unsigned short>(bits)});
    const float brain = to_float(bf16{static_cast<unsigned short>(bits)});
    EXPECT_EQ(f16_bits(half), std::isnan(half) ? 0x7fff : bits);
    EXPECT_EQ(bf16_bits(brain), std::isnan(brain) ? 0x7fff : bits);
  }
  EXPECT_EQ(to_float(f16{0x0001}), 0x1p-24F);
  EXPECT_EQ(to_float(f16{0x3555}), 0x1.554p-2F);
  EXPECT_EQ(f16_bits(0x1p-25F), 0);  // half of the least: to even
  EXPECT_EQ(f16_bits(0x1.8p-24F), 2);
  EXPECT_EQ(f16_bits(1 + 0x1p-11F), 0x3c00);
  EXPECT_EQ(f16_bits(1 + 0x3p-11F), 0x3c02);
  EXPECT_EQ(f16_bits(65519), 0x7bff);
  EXPECT_EQ(f16_bits(-65520), 0xfc00);
  EXPECT_EQ(bf16_bits(1 + 0x1p-8F), 0x3f80);
  EXPECT_EQ(bf16_bits(1 + 0x3p-8F), 0x3f82);
  EXPECT_EQ(bf16_bits(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(bf16_bits(-std::numeric_limits<float>::infinity()), 0xff80);
  EXPECT_EQ(__byte_perm(0x33221100, 0x77665544, 0x5410), 0x55441100u);
  EXPECT_EQ(__byte_perm(0x33221100, 0x77665544, 0x7632), 0x77663322u);
}

}  // namespace
}  // namespace apus
