// SPDX-License-Identifier: Apache-2.0
// For tests of GPU kernels on the simulated one: buffers that the address sanitizer guards on both sides, numbers to
// try, and comparison with what was computed in double.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/sim/gpu.h"

namespace apus::test {

using kernels::bf16;
using kernels::f16;
using NumberTypes = ::testing::Types<float, bf16, f16>;

// The largest share of a number that rounding to the type changes.
template <class T>
inline constexpr double kRounding = 0x1p-24;
template <>
inline constexpr double kRounding<bf16> = 0x1p-8;
template <>
inline constexpr double kRounding<f16> = 0x1p-11;
// And by how much it may change what is next to nothing.
template <class T>
inline constexpr double kLeast = 0;
template <>
inline constexpr double kLeast<f16> = 0x1p-25;

// As many as asked for, none of them written: bits of a NaN that no kernel computes.
template <class T>
std::vector<T> unwritten(size_t count) {
  std::vector<T> out(count);
  if (count) std::memset(static_cast<void*>(out.data()), 0xff, count * sizeof(T));
  return out;
}
template <class T>
bool is_unwritten(const T& x) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &x, sizeof x);
  for (const unsigned char byte : bytes)
    if (byte != 0xff) return false;
  return true;
}

template <class T>
T as(double x) {
  T out;
  kernels::set(out, static_cast<float>(x));
  return out;
}
template <class T>
double wide(const T& x) {
  return kernels::to_float(x);
}
// x as T holds it.
template <class T>
double held(double x) {
  return wide(as<T>(x));
}

class Numbers {
 public:
  explicit Numbers(unsigned seed) : random_(seed) {}
  double operator()(double size) { return normal_(random_) * size; }
  template <class T>
  std::vector<T> many(size_t count, double size = 1) {
    std::vector<T> out(count);
    for (T& x : out) x = as<T>((*this)(size));
    return out;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
};

// Every one is there, and off by at most `relative` of itself and `absolute`. What no T can hold is infinite.
template <class T>
void expect_close(const std::vector<T>& got, const std::vector<double>& want, double relative, double absolute,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double x = wide(got[i]), y = held<T>(want[i]);
    const bool same = std::isnan(y)   ? std::isnan(x)
                      : std::isinf(y) ? x == y
                                      : std::fabs(x - want[i]) <= relative * std::fabs(want[i]) + absolute + kLeast<T>;
    if (same && !is_unwritten(got[i])) continue;
    if (wrong++ == 0) first = i;
  }
  EXPECT_EQ(wrong, 0u) << what << ": of " << got.size() << ", the first at " << first << ": "
                       << (is_unwritten(got[first]) ? "never written" : std::to_string(wide(got[first]))) << " for "
                       << want[first];
}

}  // namespace apus::test
