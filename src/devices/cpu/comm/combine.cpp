// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/comm/combine.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace apus::cpu {

namespace {

template <class T, class Sum>
void combine_as(Reduce op, const std::vector<const void*>& parts, void* out, int64_t count) {
  constexpr int64_t kBlock = 1024;
  std::array<Sum, kBlock> sum;
  const auto share = static_cast<Sum>(parts.size());
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[static_cast<size_t>(i)] = static_cast<Sum>(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* next = static_cast<const T*>(parts[p]) + begin;
      Sum* s = sum.data();
      if (op == Reduce::Max) {
        for (int64_t i = 0; i < n; ++i) s[i] = s[i] < static_cast<Sum>(next[i]) ? static_cast<Sum>(next[i]) : s[i];
      } else if (op == Reduce::Min) {
        for (int64_t i = 0; i < n; ++i) s[i] = static_cast<Sum>(next[i]) < s[i] ? static_cast<Sum>(next[i]) : s[i];
      } else {
        for (int64_t i = 0; i < n; ++i) s[i] = static_cast<Sum>(s[i] + static_cast<Sum>(next[i]));
      }
    }
    T* to = static_cast<T*>(out) + begin;
    if (op == Reduce::Avg)
      for (int64_t i = 0; i < n; ++i)
        sum[static_cast<size_t>(i)] = static_cast<Sum>(sum[static_cast<size_t>(i)] / share);
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(sum[static_cast<size_t>(i)]);
  }
}

}  // namespace

void combine(c10::ScalarType type, Reduce op, const std::vector<const void*>& parts, void* out, int64_t count) {
  require(op != Reduce::Avg || c10::isFloatingType(type), Fault::Bug,
          "the average of whole numbers over ranks is not defined: sum them");
  switch (type) {
    case c10::kFloat:
      return combine_as<float, float>(op, parts, out, count);
    case c10::kDouble:
      return combine_as<double, double>(op, parts, out, count);
    case c10::kBFloat16:
      return combine_as<c10::BFloat16, float>(op, parts, out, count);
    case c10::kHalf:
      return combine_as<c10::Half, float>(op, parts, out, count);
    case c10::kLong:
      return combine_as<int64_t, int64_t>(op, parts, out, count);
    case c10::kInt:
      return combine_as<int32_t, int64_t>(op, parts, out, count);
    case c10::kChar:
      return combine_as<int8_t, int64_t>(op, parts, out, count);
    case c10::kByte:
      return combine_as<uint8_t, int64_t>(op, parts, out, count);
    case c10::kBool:
      return combine_as<bool, int>(op, parts, out, count);
    default:
      fail(Fault::Bug, "numbers of type ", c10::toString(type), " cannot be reduced over ranks");
  }
}

}  // namespace apus::cpu
