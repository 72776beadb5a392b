// SPDX-License-Identifier: Apache-2.0
// Fractions of whole numbers of any length (up to a bound): 9999999999999999 is not 10^16.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace apus {

class ExactNumber {
 public:
  ExactNumber() = default;
  explicit ExactNumber(uint32_t whole) : num_(digits_of(whole)) {}
  static std::optional<ExactNumber> of_decimal(std::string_view text);  // 12, 0.5, .5

  ExactNumber negated() const;
  // Nothing where the result would be too long, or has no value.
  static std::optional<ExactNumber> sum(const ExactNumber& a, const ExactNumber& b);
  static std::optional<ExactNumber> product(const ExactNumber& a, const ExactNumber& b);
  static std::optional<ExactNumber> quotient(const ExactNumber& a, const ExactNumber& b);
  static std::optional<ExactNumber> power(const ExactNumber& base, const ExactNumber& exponent);  // of whole exponents
  std::optional<ExactNumber> factorial() const;

  friend bool operator==(const ExactNumber& a, const ExactNumber& b);
  // Has it finitely many decimals? 1/3 has not.
  bool terminates() const;

 private:
  using Digits = std::vector<uint32_t>;  // the lowest first, none of zero at the end
  static Digits digits_of(uint32_t whole) { return whole ? Digits{whole} : Digits(); }
  static Digits multiply(const Digits& a, const Digits& b);
  static Digits add(const Digits& a, const Digits& b);
  static Digits subtract(const Digits& a, const Digits& b);  // a >= b
  static int compare(const Digits& a, const Digits& b);
  static uint32_t divide(Digits& a, uint32_t by);  // -> what is left
  static std::optional<ExactNumber> bounded(bool negative, Digits num, Digits den);
  std::optional<uint32_t> small_whole() const;  // its size, where it is a whole number below 2^32

  bool negative_ = false;
  Digits num_, den_ = {1};
};

}  // namespace apus
