// SPDX-License-Identifier: Apache-2.0
// Python's numbers: integers without end, floats that print as short as they can be read back.
#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/strings.h"
#include "text/jinja/value.h"

namespace apus::jinja {

namespace {

using Big = boost::multiprecision::cpp_int;
constexpr int64_t kMaxBits = 14000;  // Python refuses to print integers of more than 4300 digits

struct BigObject : Object {
  Big value;
};

Big to_big(const Value& value) {
  if (value.is(Kind::BigInt)) return value.as<BigObject>().value;
  return value.is(Kind::Bool) ? Big(value.boolean() ? 1 : 0) : Big(value.integer());
}

int64_t small(const Value& value) { return value.is(Kind::Bool) ? value.boolean() : value.integer(); }

Value from_big(Heap& heap, Big value) {
  if (value >= std::numeric_limits<int64_t>::min() && value <= std::numeric_limits<int64_t>::max()) {
    return static_cast<int64_t>(value);
  }
  if (value != 0 && static_cast<int64_t>(msb(value < 0 ? Big(-value) : value)) > kMaxBits) {
    trouble("an integer of more than 4300 digits");
  }
  auto* object = heap.make<BigObject>(2048);
  object->value = std::move(value);
  return {Kind::BigInt, object};
}

double big_to_real(const Big& value) {
  const double real = value.convert_to<double>();
  if (std::isinf(real)) trouble("int too large to convert to float");
  return real;
}

// The quotient of integers, rounded once. Neither is zero.
double big_quotient(const Big& a, const Big& b) {
  const Big x = abs(a), y = abs(b);
  const int64_t shift = 60 - (static_cast<int64_t>(msb(x)) - static_cast<int64_t>(msb(y)));  // leaves 60 or 61 bits
  Big quotient, rest;
  divide_qr(shift > 0 ? Big(x << static_cast<unsigned>(shift)) : x,
            shift < 0 ? Big(y << static_cast<unsigned>(-shift)) : y, quotient, rest);
  const uint64_t bits = static_cast<uint64_t>(quotient) | (rest != 0);
  const double size = std::ldexp(static_cast<double>(bits), static_cast<int>(-shift));
  if (std::isinf(size)) trouble("integer division result too large for a float");
  return (a < 0) != (b < 0) ? -size : size;
}

Big floor_div(const Big& a, const Big& b) {
  Big quotient, rest;
  divide_qr(a, b, quotient, rest);
  if (rest != 0 && (rest < 0) != (b < 0)) --quotient;
  return quotient;
}

double floor_mod(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

double floor_div(double a, double b) {
  const double quotient = (a - floor_mod(a, b)) / b;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double down = std::floor(quotient);
  return quotient - down > 0.5 ? down + 1 : down;
}

Value power(Heap& heap, const Value& a, const Value& b) {
  if (a.is(Kind::Float) || b.is(Kind::Float) || (!b.is(Kind::BigInt) && small(b) < 0) ||
      (b.is(Kind::BigInt) && big_negative(b))) {
    const double x = to_real(a), y = to_real(b);
    if (x == 0 && y < 0) trouble("0.0 cannot be raised to a negative power");
    if (x < 0 && y != std::floor(y))
      trouble("a negative number to a fractional power is complex, which is not supported");
    const double result = std::pow(x, y);
    if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) trouble("(34, 'Numerical result out of range')");
    return result;
  }
  const Big base = to_big(a);
  if (base >= -1 && base <= 1) {
    const bool odd = b.is(Kind::BigInt) ? big_is_odd(b) : small(b) % 2 != 0;
    const bool zero = !b.is(Kind::BigInt) && small(b) == 0;
    return static_cast<int64_t>(zero ? 1 : base == -1 && !odd ? 1 : static_cast<int>(base));
  }
  const int64_t bits = static_cast<int64_t>(msb(base < 0 ? Big(-base) : base)) + 1;
  if (b.is(Kind::BigInt) || small(b) > kMaxBits || bits * small(b) > 2 * kMaxBits) {
    trouble("an integer of more than 4300 digits");
  }
  return from_big(heap, pow(base, static_cast<unsigned>(small(b))));
}

Value real_arithmetic(char op, double a, double b) {
  if (b == 0 && (op == '/' || op == 'f' || op == '%')) {
    trouble(op == '/' ? "float division by zero" : op == 'f' ? "float floor division by zero" : "float modulo");
  }
  switch (op) {
    case '+':
      return a + b;
    case '-':
      return a - b;
    case '*':
      return a * b;
    case '/':
      return a / b;
    case 'f':
      return floor_div(a, b);
    default:
      return floor_mod(a, b);
  }
}

// Both fit 64 bits; false when the result does not.
bool small_arithmetic(char op, int64_t a, int64_t b, int64_t& out) {
  switch (op) {
    case '+':
      return !__builtin_add_overflow(a, b, &out);
    case '-':
      return !__builtin_sub_overflow(a, b, &out);
    case '*':
      return !__builtin_mul_overflow(a, b, &out);
    default:
      break;
  }
  if (b == -1) return false;  // the one division that can overflow
  const int64_t rest = a % b, adjust = rest != 0 && (rest < 0) != (b < 0);
  out = op == 'f' ? a / b - adjust : rest + adjust * b;
  return true;
}

}  // namespace

Value arithmetic(Heap& heap, char op, const Value& a, const Value& b) {
  if (op == 'p') return power(heap, a, b);
  if (a.is(Kind::Float) || b.is(Kind::Float)) return real_arithmetic(op, to_real(a), to_real(b));
  const bool zero = !b.is(Kind::BigInt) && small(b) == 0;
  if (op == '/' && zero) trouble("division by zero");
  if (zero && (op == 'f' || op == '%')) trouble("integer division or modulo by zero");
  if (op == '/') {
    constexpr int64_t kExact = int64_t{1} << 53;  // beyond it not every integer is a float
    const auto exact = [](const Value& v) { return !v.is(Kind::BigInt) && small(v) >= -kExact && small(v) <= kExact; };
    if (exact(a) && exact(b)) return static_cast<double>(small(a)) / static_cast<double>(small(b));
    const Big x = to_big(a);
    return x == 0 ? 0.0 : big_quotient(x, to_big(b));
  }
  int64_t out = 0;
  if (!a.is(Kind::BigInt) && !b.is(Kind::BigInt) && small_arithmetic(op, small(a), small(b), out)) return out;
  const Big x = to_big(a), y = to_big(b);
  switch (op) {
    case '+':
      return from_big(heap, x + y);
    case '-':
      return from_big(heap, x - y);
    case '*':
      return from_big(heap, x * y);
    case 'f':
      return from_big(heap, floor_div(x, y));
    default:
      return from_big(heap, x - floor_div(x, y) * y);
  }
}

Value negate(Heap& heap, const Value& value) {
  if (value.is(Kind::Float)) return -value.real();
  return arithmetic(heap, '-', int64_t{0}, value);
}

double to_real(const Value& value) {
  if (value.is(Kind::Float)) return value.real();
  return value.is(Kind::BigInt) ? big_to_real(value.as<BigObject>().value) : static_cast<double>(small(value));
}

int compare_numbers(const Value& a, const Value& b) {
  const auto order = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  if (!a.is(Kind::Float) && !b.is(Kind::Float)) {
    if (!a.is(Kind::BigInt) && !b.is(Kind::BigInt)) return order(small(a), small(b));
    return order(to_big(a), to_big(b));
  }
  if (a.is(Kind::Float) && b.is(Kind::Float)) {
    return std::isnan(a.real()) || std::isnan(b.real()) ? 2 : order(a.real(), b.real());
  }
  if (b.is(Kind::Float)) {
    const int reversed = compare_numbers(b, a);
    return reversed == 2 ? 2 : -reversed;
  }
  const double real = a.real();
  if (std::isnan(real)) return 2;
  if (std::isinf(real)) return real > 0 ? 1 : -1;
  const double whole = std::floor(real);
  const int by_whole = order(Big(whole), to_big(b));
  return by_whole != 0 ? by_whole : whole < real ? 1 : 0;
}

bool big_is_odd(const Value& value) {
  return bit_test(value.as<BigObject>().value < 0 ? Big(-value.as<BigObject>().value) : value.as<BigObject>().value, 0);
}
bool big_negative(const Value& value) { return value.as<BigObject>().value < 0; }

size_t hash_number(const Value& value) {
  if (value.is(Kind::Float)) {
    const double real = value.real();
    if (real == std::floor(real) && std::fabs(real) < 9.2e18) return std::hash<int64_t>()(static_cast<int64_t>(real));
    return std::hash<double>()(real);
  }
  if (value.is(Kind::BigInt)) return std::hash<double>()(value.as<BigObject>().value.convert_to<double>());
  return std::hash<int64_t>()(small(value));
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  std::string out;
  if (text[0] == '-') {
    out = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string integer_text(const Value& value, int base) {
  const Big big = to_big(value);
  if (base == 10) return big.str();
  std::string out = Big(big < 0 ? Big(-big) : big)
                        .str(0, base == 16  ? std::ios_base::hex
                                : base == 8 ? std::ios_base::oct
                                            : std::ios_base::fmtflags(0));
  if (base == 2) {
    out.clear();
    const Big size = big < 0 ? Big(-big) : big;
    for (int64_t bit = size == 0 ? 0 : static_cast<int64_t>(msb(size)); bit >= 0; --bit) {
      out += bit_test(size, static_cast<unsigned>(bit)) ? '1' : '0';
    }
  }
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return (big < 0 ? "-" : "") + out;
}

Value parse_integer(Heap& heap, std::string_view digits, int base, bool negative) {
  if (digits.empty() || digits.size() > 20000) trouble("an integer of more than 4300 digits");
  if (base == 10 && digits.size() <= 18) {
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (result.ec != std::errc() || result.ptr != digits.data() + digits.size()) trouble("not an integer: ", digits);
    return negative ? -value : value;
  }
  Big big = 0;
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 10
                      : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                             : 99;
    if (digit >= base) trouble("not an integer: ", digits);
    big = big * base + digit;
  }
  return from_big(heap, negative ? Big(-big) : big);
}

double parse_real(std::string_view text, bool& ok) {
  ok = false;
  std::string_view body = strip_left(strip_right(text));
  std::string plain;
  for (size_t i = 0; i < body.size(); ++i) {  // underscores only between digits
    const auto digit = [&](size_t at) { return at < body.size() && body[at] >= '0' && body[at] <= '9'; };
    if (body[i] != '_')
      plain += body[i];
    else if (i == 0 || !digit(i - 1) || !digit(i + 1))
      return 0;
  }
  bool negative = false;
  std::string_view rest = plain;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest[0] == '+' || rest[0] == '-') return 0;
  double value = 0;
  const std::string name = lower(rest);
  if (name == "inf" || name == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (name == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (!(rest[0] == '.' || (rest[0] >= '0' && rest[0] <= '9'))) return 0;
    const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (result.ptr != rest.data() + rest.size() || result.ec == std::errc::invalid_argument) return 0;
    if (result.ec == std::errc::result_out_of_range) value = std::strtod(std::string(rest).c_str(), nullptr);
  }
  ok = true;
  return negative ? -value : value;
}

Value real_to_integer(Heap& heap, double value) {
  if (std::isnan(value)) trouble("cannot convert float NaN to integer");
  if (std::isinf(value)) trouble("cannot convert float infinity to integer");
  if (std::fabs(value) < 9.2e18) return static_cast<int64_t>(value);
  return from_big(heap, Big(std::trunc(value)));
}

}  // namespace apus::jinja
