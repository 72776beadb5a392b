// SPDX-License-Identifier: Apache-2.0
// RMS norm, AdamW and sums of squares: as gpu_pointwise_test.cpp has it for other kernels.
#include <algorithm>

#include "tests/devices_host/gpu_kernels.h"

namespace apus::kernels {
namespace rms_norm {
#include "devices/cuda/kernels/rms_norm.cu"
}
namespace adamw {
#include "devices/cuda/kernels/adamw.cu"
}
namespace sum_of_squares {
#include "devices/cuda/kernels/sum_of_squares.cu"
}
}  // namespace apus::kernels

namespace apus::test {
namespace {

constexpr float kEps = 1e-6F;

template <class T>
class GpuRows : public ::testing::Test {};
TYPED_TEST_SUITE(GpuRows, NumberTypes);

struct Shape {
  unsigned rows;
  int packs;  // of a row
  double scale;
};
// Four rows a block and one; packs that are no multiple of a warp's; rows that threads go through twice.
const Shape kShapes[] = {{1, 1, 1}, {9, 8, 1}, {6, 33, 100}, {3, 100, 1e-3}, {2, 513, 1}, {2, 1100, 3}, {5, 32, 0}};

struct Launch {
  explicit Launch(const Shape& s) {
    block.x = static_cast<unsigned>(std::clamp((s.packs + 31) / 32 * 32, 32, 512));
    block.y = block.x == 32 ? 4 : 1;
    grid.x = (s.rows + block.y - 1) / block.y;
  }
  gpu::Extent grid, block;
};

template <class T>
double inverse_rms(const T* row, int size) {
  double squares = 0;
  for (int i = 0; i < size; ++i) squares += wide(row[i]) * wide(row[i]);
  return 1 / std::sqrt(squares / size + kEps);
}

template <class T>
std::vector<double> normed(const std::vector<T>& x, const std::vector<T>& weight) {
  const int size = static_cast<int>(weight.size());
  std::vector<double> out;
  for (size_t first = 0; first < x.size(); first += size) {
    const double inverse = inverse_rms(&x[first], size);
    for (int i = 0; i < size; ++i) out.push_back(held<T>(wide(x[first + i]) * inverse) * wide(weight[i]));
  }
  return out;
}

// The rounding before the weight may fall on either side, which is up to two roundings; f32: sums of thousands.
template <class T>
constexpr double kNormed = sizeof(T) == 4 ? 2e-6 : 3 * kRounding<T>;

TYPED_TEST(GpuRows, RmsNorm) {
  using T = TypeParam;
  Numbers numbers(1);
  for (const Shape& s : kShapes) {
    const int size = s.packs * kernels::Pack<T>::size;
    const auto x = numbers.many<T>(s.rows * size, s.scale), weight = numbers.many<T>(size);
    auto y = unwritten<T>(x.size());
    const Launch at(s);
    const std::string what = "rows of " + std::to_string(size);
    gpu::launch(at.grid, at.block, [&] {
      kernels::rms_norm::forward<T>(x.data(), nullptr, weight.data(), nullptr, y.data(), s.rows, size, kEps);
    });
    expect_close(y, normed(x, weight), kNormed<T>, 1e-7, what);

    // x + delta, rounded, is what is normed.
    const auto delta = numbers.many<T>(x.size(), s.scale);
    auto sum = unwritten<T>(x.size());
    y = unwritten<T>(x.size());
    gpu::launch(at.grid, at.block, [&] {
      kernels::rms_norm::forward<T>(x.data(), delta.data(), weight.data(), sum.data(), y.data(), s.rows, size, kEps);
    });
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(wide(sum[i]), wide(as<T>(static_cast<float>(wide(x[i])) + static_cast<float>(wide(delta[i]))))) << what;
    expect_close(y, normed(sum, weight), kNormed<T>, 1e-7, what + " with delta");
  }
}

TYPED_TEST(GpuRows, RmsNormBackward) {
  using T = TypeParam;
  Numbers numbers(2);
  for (const Shape& s : kShapes) {
    if (s.scale == 0) continue;
    const int size = s.packs * kernels::Pack<T>::size;
    const auto x = numbers.many<T>(s.rows * size, s.scale), grad = numbers.many<T>(x.size()),
               grad_sum = numbers.many<T>(x.size()), weight = numbers.many<T>(size);
    std::vector<double> want, want_sum, want_inverse, want_weight(size);
    double most = 0;
    for (unsigned row = 0; row < s.rows; ++row) {
      const T *const a = &x[row * size], *const g = &grad[row * size];
      const double inverse = inverse_rms(a, size);
      double mean = 0;
      for (int i = 0; i < size; ++i) mean += wide(g[i]) * wide(weight[i]) * wide(a[i]) * inverse / size;
      for (int i = 0; i < size; ++i) {
        want.push_back(inverse * (wide(g[i]) * wide(weight[i]) - wide(a[i]) * inverse * mean));
        want_sum.push_back(want.back() + wide(grad_sum[row * size + i]));
        want_weight[i] += wide(g[i]) * wide(a[i]) * inverse;
      }
      want_inverse.push_back(inverse), most = std::max(most, inverse);
    }
    const Launch at(s);
    const std::string what = "rows of " + std::to_string(size);
    auto dx = unwritten<T>(x.size());
    auto inverses = unwritten<float>(s.rows);
    gpu::launch(at.grid, at.block, [&] {
      kernels::rms_norm::backward<T>(grad.data(), x.data(), weight.data(), nullptr, dx.data(), inverses.data(), s.rows,
                                     size, kEps);
    });
    // A difference of numbers of about `most`, in f32.
    expect_close(dx, want, 1.5 * kRounding<T>, 1e-5 * most, what);
    expect_close(inverses, want_inverse, 2e-6, 0, what + ": inverses");
    dx = unwritten<T>(x.size());
    gpu::launch(at.grid, at.block, [&] {
      kernels::rms_norm::backward<T>(grad.data(), x.data(), weight.data(), grad_sum.data(), dx.data(), nullptr, s.rows,
                                     size, kEps);
    });
    expect_close(dx, want_sum, 1.5 * kRounding<T>, 1e-5 * most, what + " with a sum's gradient");

    // One part more than rows has nothing to do, and says so.
    for (const unsigned count : {1u, 3u, s.rows + 1}) {
      auto parts = unwritten<float>(count * size);
      gpu::launch({(s.packs + 127u) / 128, count}, {128}, [&] {
        kernels::rms_norm::weight_gradient<T>(grad.data(), x.data(), inverses.data(), parts.data(), s.rows, size);
      });
      std::vector<float> sums(size);
      for (size_t i = 0; i < parts.size(); ++i) sums[i % size] += parts[i];
      expect_close(sums, want_weight, 1e-5, 1e-5, what + ": weight");
    }
  }
}

template <class P, class G>
void check_adamw(bool with_master, long long dither, const std::string& what) {
  Numbers numbers(3);
  constexpr size_t count = 1000;
  constexpr double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1, scale = 0.5;
  const double correction1 = 1 - std::pow(beta1, 3), correction2 = std::sqrt(1 - std::pow(beta2, 3));
  const kernels::adamw::Step step{static_cast<float>(scale),
                                  static_cast<float>(beta1),
                                  static_cast<float>(beta2),
                                  static_cast<float>(1 - lr * decay),
                                  static_cast<float>(lr / correction1),
                                  static_cast<float>(correction2),
                                  static_cast<float>(eps),
                                  dither};
  auto param = numbers.many<P>(count);
  auto grad = numbers.many<G>(count), unused = grad;
  grad[5] = as<G>(0);
  auto mean = numbers.many<float>(count, 0.1), square = numbers.many<float>(count, 0.1),
       master = numbers.many<float>(count);
  mean[5] = square[5] = 0;  // eps alone divides
  for (float& x : square) x = std::fabs(x);
  std::vector<double> want, want_mean, want_square;
  for (size_t i = 0; i < count; ++i) {
    const double g = wide(grad[i]) * scale, m = mean[i] * beta1 + g * (1 - beta1),
                 v = square[i] * beta2 + g * g * (1 - beta2);
    const double x = with_master ? master[i] : wide(param[i]);
    want.push_back(x * (1 - lr * decay) - lr / correction1 * m / (std::sqrt(v) / correction2 + eps));
    want_mean.push_back(m), want_square.push_back(v);
  }
  gpu::launch({3}, {256}, [&] {  // fewer threads than numbers
    kernels::adamw::step<P, G>(param.data(), grad.data(), mean.data(), square.data(),
                               with_master ? master.data() : nullptr, step, count);
  });
  // Every factor is rounded to f32.
  expect_close(mean, want_mean, 1e-6, 1e-7, what);
  expect_close(square, want_square, 1e-6, 1e-7, what);
  if (with_master) expect_close(master, want, 1e-6, 1e-7, what);
  expect_close(param, want, dither >= 0 ? 2.01 * kRounding<P> : 1.01 * kRounding<P> + 1e-6, 1e-6, what);
  if (dither < 0) return;
  // Up as often as the threshold of tensor/dither.h says.
  size_t off = 0;
  for (size_t i = 0; i < count; ++i) {
    const float exact = with_master ? master[i] : static_cast<float>(want[i]);
    const unsigned threshold = static_cast<unsigned>(dither) + static_cast<unsigned>(i) * 0x9e3779b9u;
    const unsigned bits = std::bit_cast<unsigned>(exact), low = bits & 0xffff;
    if (low > 0x100 && low < 0xff00 &&
        wide(param[i]) != std::bit_cast<float>(((bits >> 16) + (low + (threshold >> 16) > 0xffff)) << 16))
      ++off;
  }
  EXPECT_LT(off, with_master ? 1u : count / 50) << what;  // without one, f32's own errors tip a few
}

TEST(GpuAdamw, IsAdamw) {
  check_adamw<float, float>(false, -1, "f32");
  check_adamw<bf16, bf16>(true, -1, "bf16 with a master");
  check_adamw<bf16, float>(false, -1, "bf16, gradient in f32");
  check_adamw<bf16, bf16>(false, 12345, "bf16, dithered");
  check_adamw<bf16, float>(true, 0xfffffff0, "bf16, dithered from a master");
  check_adamw<f16, f16>(true, -1, "f16 with a master");
  check_adamw<f16, float>(false, -1, "f16, gradient in f32");
}

TYPED_TEST(GpuRows, SumOfSquares) {
  using T = TypeParam;
  Numbers numbers(5);
  for (const size_t count : {1, 255, 4000}) {
    auto x = numbers.many<T>(count);
    x[0] = as<T>(6e4);  // its square is more than f16 holds
    for (const unsigned blocks : {1u, 3u, 20u}) {
      auto sums = unwritten<double>(blocks);
      gpu::launch({blocks}, {256},
                  [&] { kernels::sum_of_squares::sums<T>(x.data(), sums.data(), static_cast<long long>(count)); });
      double sum = 0, want = 0;
      for (const double s : sums) sum += s;
      for (const T& a : x) want += wide(a) * wide(a);
      EXPECT_NEAR(sum, want, 1e-12 * want) << count << " in " << blocks;
    }
  }
}

}  // namespace
}  // namespace apus::test
