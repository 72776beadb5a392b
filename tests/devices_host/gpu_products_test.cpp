// SPDX-License-Identifier: Apache-2.0
// Products of few rows and sums over a token's experts: as gpu_pointwise_test.cpp has it for other kernels.
#include "tests/devices_host/gpu_kernels.h"

namespace apus::kernels {
namespace moe {
#include "devices/cuda/kernels/moe.cu"
}
namespace thin_product {
#include "devices/cuda/kernels/thin_product.cu"
}
}  // namespace apus::kernels

namespace apus::test {
namespace {

// Sums in f32 of numbers of about one: off by 1e-6 of the square root of how many.
template <class T, class Y, int kRows, int kShare>
void check_product(int in, unsigned out, bool with_bias) {
  Numbers numbers(1);
  const auto x = numbers.many<T>(kRows * in), weight = numbers.many<T>(out * in), bias = numbers.many<T>(out);
  auto y = unwritten<Y>(kRows * out);
  constexpr unsigned kColumns = 8 / kShare;  // of a block
  gpu::launch({(out + kColumns - 1) / kColumns}, {256}, [&] {
    kernels::thin_product::product<T, Y, kRows, kShare>(x.data(), weight.data(), with_bias ? bias.data() : nullptr,
                                                        y.data(), in, static_cast<int>(out));
  });
  std::vector<double> want;
  for (int row = 0; row < kRows; ++row)
    for (unsigned column = 0; column < out; ++column) {
      double sum = with_bias ? wide(bias[column]) : 0;
      for (int i = 0; i < in; ++i) sum += wide(x[row * in + i]) * wide(weight[column * in + i]);
      want.push_back(sum);
    }
  expect_close(y, want, 1.5 * kRounding<Y>, 2e-6 * std::sqrt(in),
               std::to_string(kRows) + " x " + std::to_string(in) + " to " + std::to_string(out) + " by " +
                   std::to_string(kShare));
}

// A pack, which one lane reads; lanes and warps without any; what is read ahead ends in the middle, and one pack
// behind.
template <class T, class Y, int kRows, int kShare>
void check_products() {
  for (const int in : {8, 64, 264, 2048, 2056, 4360})
    check_product<T, Y, kRows, kShare>(in, in == 64 ? 1 : in == 8 ? 16 : 11, in != 264);
}
TEST(GpuThinProduct, IsTheProduct) {
  check_products<bf16, bf16, 1, 1>();
  check_products<bf16, bf16, 2, 2>();
  check_products<bf16, float, 1, 8>();
  check_products<bf16, float, 3, 4>();
  check_products<f16, f16, 4, 8>();
  check_products<f16, float, 1, 2>();
}

template <class T>
class GpuMoe : public ::testing::Test {};
TYPED_TEST_SUITE(GpuMoe, NumberTypes);

struct Pairs {
  unsigned tokens;
  int k, packs;
};
TYPED_TEST(GpuMoe, PairsAreSummedUp) {
  using T = TypeParam;
  Numbers numbers(2);
  for (const Pairs& c : {Pairs{1, 1, 1}, Pairs{7, 2, 33}, Pairs{3, 8, 300}}) {
    const int size = c.packs * kernels::Pack<T>::size;
    const size_t pairs = c.tokens * c.k;
    const auto rows = numbers.many<T>(pairs * size);
    const auto weight = numbers.many<float>(pairs);
    std::vector<long long> place(pairs);
    for (size_t i = 0; i < pairs; ++i) place[i] = static_cast<long long>(pairs - 1 - i);
    for (const float* w : {weight.data(), static_cast<const float*>(nullptr)}) {
      auto y = unwritten<T>(c.tokens * size);
      const unsigned threads = std::min(256, (c.packs + 31) / 32 * 32);
      gpu::launch({c.tokens}, {threads},
                  [&] { kernels::moe::sum_pairs<T>(rows.data(), place.data(), w, y.data(), c.k, size); });
      std::vector<double> want(y.size());
      for (size_t pair = 0; pair < pairs; ++pair)
        for (int i = 0; i < size; ++i)
          want[pair / c.k * size + i] += (w ? w[pair] : 1.) * wide(rows[place[pair] * size + i]);
      expect_close(y, want, 1.5 * kRounding<T>, 1e-6 * c.k, std::to_string(c.k) + " of " + std::to_string(size));
    }
  }
}

}  // namespace
}  // namespace apus::test
