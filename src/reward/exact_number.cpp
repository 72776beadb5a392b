// SPDX-License-Identifier: Apache-2.0
#include "reward/exact_number.h"

#include <algorithm>

namespace apus {
namespace {
constexpr size_t kMostDigits = 256;  // of 32 bits: about 2466 decimal ones
}

ExactNumber::Digits ExactNumber::multiply(const Digits& a, const Digits& b) {
  Digits out(a.size() + b.size(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    uint64_t carry = 0;
    for (size_t k = 0; k < b.size(); ++k) {
      carry += out[i + k] + uint64_t{a[i]} * b[k];
      out[i + k] = static_cast<uint32_t>(carry), carry >>= 32;
    }
    out[i + b.size()] = static_cast<uint32_t>(carry);
  }
  while (!out.empty() && out.back() == 0) out.pop_back();
  return out;
}

ExactNumber::Digits ExactNumber::add(const Digits& a, const Digits& b) {
  Digits out;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry; ++i) {
    carry += (i < a.size() ? uint64_t{a[i]} : 0) + (i < b.size() ? uint64_t{b[i]} : 0);
    out.push_back(static_cast<uint32_t>(carry)), carry >>= 32;
  }
  return out;
}

ExactNumber::Digits ExactNumber::subtract(const Digits& a, const Digits& b) {
  Digits out = a;
  int64_t borrow = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t digit = int64_t{out[i]} - borrow - (i < b.size() ? int64_t{b[i]} : 0);
    borrow = digit < 0;
    out[i] = static_cast<uint32_t>(digit + (borrow << 32));
  }
  while (!out.empty() && out.back() == 0) out.pop_back();
  return out;
}

int ExactNumber::compare(const Digits& a, const Digits& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

uint32_t ExactNumber::divide(Digits& a, uint32_t by) {
  uint64_t left = 0;
  for (size_t i = a.size(); i-- > 0;) {
    left = left << 32 | a[i];
    a[i] = static_cast<uint32_t>(left / by), left %= by;
  }
  while (!a.empty() && a.back() == 0) a.pop_back();
  return static_cast<uint32_t>(left);
}

std::optional<ExactNumber> ExactNumber::bounded(bool negative, Digits num, Digits den) {
  if (den.empty() || num.size() > kMostDigits || den.size() > kMostDigits) return std::nullopt;
  ExactNumber out;
  out.negative_ = negative && !num.empty(), out.num_ = std::move(num), out.den_ = std::move(den);
  return out;
}

std::optional<ExactNumber> ExactNumber::of_decimal(std::string_view text) {
  if (text.size() > 2000) return std::nullopt;
  Digits num, den = {1};
  bool behind_point = false;
  for (const char c : text) {
    if (c == '.') {
      behind_point = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    num = add(multiply(num, {10}), digits_of(static_cast<uint32_t>(c - '0')));
    if (behind_point) den = multiply(den, {10});
  }
  return bounded(false, std::move(num), std::move(den));
}

ExactNumber ExactNumber::negated() const {
  ExactNumber out = *this;
  out.negative_ = !negative_ && !num_.empty();
  return out;
}

std::optional<ExactNumber> ExactNumber::sum(const ExactNumber& a, const ExactNumber& b) {
  const Digits x = multiply(a.num_, b.den_), y = multiply(b.num_, a.den_);
  Digits den = multiply(a.den_, b.den_);
  if (a.negative_ == b.negative_) return bounded(a.negative_, add(x, y), std::move(den));
  const bool first = compare(x, y) >= 0;
  return bounded(first ? a.negative_ : b.negative_, first ? subtract(x, y) : subtract(y, x), std::move(den));
}

std::optional<ExactNumber> ExactNumber::product(const ExactNumber& a, const ExactNumber& b) {
  return bounded(a.negative_ != b.negative_, multiply(a.num_, b.num_), multiply(a.den_, b.den_));
}

std::optional<ExactNumber> ExactNumber::quotient(const ExactNumber& a, const ExactNumber& b) {
  return bounded(a.negative_ != b.negative_, multiply(a.num_, b.den_), multiply(a.den_, b.num_));
}

std::optional<uint32_t> ExactNumber::small_whole() const {
  if (num_.empty()) return 0;
  if (den_.size() != 1) return std::nullopt;
  Digits whole = num_;
  if (divide(whole, den_[0]) != 0 || whole.size() > 1) return std::nullopt;
  return whole.front();
}

std::optional<ExactNumber> ExactNumber::power(const ExactNumber& base, const ExactNumber& exponent) {
  const auto times = exponent.small_whole();
  if (!times || *times > 32 * kMostDigits || (base.num_.empty() && *times == 0)) return std::nullopt;
  std::optional<ExactNumber> out = ExactNumber(1);
  for (uint32_t i = 0; i < *times && out; ++i) out = product(*out, base);
  return out && exponent.negative_ ? quotient(ExactNumber(1), *out) : out;
}

std::optional<ExactNumber> ExactNumber::factorial() const {
  const auto whole = small_whole();
  if (!whole || negative_ || *whole > 1000) return std::nullopt;
  std::optional<ExactNumber> out = ExactNumber(1);
  for (uint32_t i = 2; i <= *whole && out; ++i) out = product(*out, ExactNumber(i));
  return out;
}

bool operator==(const ExactNumber& a, const ExactNumber& b) {
  return a.negative_ == b.negative_ &&
         ExactNumber::compare(ExactNumber::multiply(a.num_, b.den_), ExactNumber::multiply(b.num_, a.den_)) == 0;
}

bool ExactNumber::terminates() const {
  Digits rest = den_;
  for (const uint32_t prime : {2u, 5u})
    for (Digits smaller = rest; divide(smaller, prime) == 0; smaller = rest) rest = smaller;
  if (rest.size() > 1) return false;
  Digits num = num_;
  return divide(num, rest.front()) == 0;
}

}  // namespace apus
