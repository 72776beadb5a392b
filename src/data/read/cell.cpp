// SPDX-License-Identifier: Apache-2.0
#include "data/read/cell.h"

#include <cmath>
#include <cstdio>

#include "base/base64.h"
#include "base/error.h"

namespace apus {

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }  // b > 0
int64_t floor_mod(int64_t a, int64_t b) { return a % b < 0 ? a % b + b : a % b; }

// Part of a second as ".25", or nothing.
std::string fraction(int64_t ticks, int64_t per_second) {
  if (ticks == 0) return "";
  std::string digits = std::to_string(per_second + ticks).substr(1);
  digits.erase(digits.find_last_not_of('0') + 1);
  return "." + digits;
}

}  // namespace

std::string date_text(int64_t days) {
  // Years counted from March, so that the leap day is the last of its year; 146097 days are 400 years.
  const int64_t shifted = days + 719468, era = floor_div(shifted, 146097), day = floor_mod(shifted, 146097);
  const int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365,
                of_year = day - (365 * year + year / 4 - year / 100);
  const int64_t march = (5 * of_year + 2) / 153, month = march < 10 ? march + 3 : march - 9;
  const long long y = year + era * 400 + (month <= 2), d = of_year - (153 * march + 2) / 5 + 1;
  char out[64];
  std::snprintf(out, sizeof out, "%04lld-%02lld-%02lld", y, static_cast<long long>(month), d);
  return out;
}

std::string clock_text(int64_t ticks, int64_t per_second) {
  const int64_t s = floor_div(ticks, per_second);
  char out[64];
  std::snprintf(out, sizeof out, "%02lld:%02lld:%02lld", static_cast<long long>(s / 3600),
                static_cast<long long>(s / 60 % 60), static_cast<long long>(s % 60));
  return out + fraction(floor_mod(ticks, per_second), per_second);
}

std::string stamp_text(int64_t ticks, int64_t per_second) {
  const int64_t day = 86400 * per_second;
  return date_text(floor_div(ticks, day)) + "T" + clock_text(floor_mod(ticks, day), per_second);
}

std::string uuid_text(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); ++i) {
    static const char hex[] = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    const auto b = static_cast<unsigned char>(bytes[i]);
    out += hex[b >> 4];
    out += hex[b & 15];
  }
  return out;
}

std::string bytes_text(std::string_view bytes) { return "data:application/octet-stream;base64," + base64(bytes); }

double half_to_double(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                      : exponent     ? std::ldexp(1024 + mantissa, exponent - 25)
                                     : std::ldexp(mantissa, -24);
  return bits & 0x8000 ? -size : size;
}

double decimal_value(std::string_view big_endian, int scale) {
  double value = !big_endian.empty() && static_cast<signed char>(big_endian[0]) < 0 ? -1 : 0;
  for (const char c : big_endian) value = value * 256 + static_cast<unsigned char>(c);
  return value / std::pow(10.0, scale);
}

}  // namespace apus
