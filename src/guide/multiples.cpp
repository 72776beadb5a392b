// SPDX-License-Identifier: Apache-2.0
#include "guide/multiples.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "base/error.h"

namespace apus::guide {

namespace {

constexpr uint64_t kFewEnough = 1000;    // multiples that are written out
constexpr uint64_t kLargestUnit = 1000;  // else one state for each remainder and number of digits left
constexpr uint64_t kMostStates = 8000;

// Numbers digit by digit: what is left to write, and the remainder of what was written.
class Digits {
 public:
  Digits(Grammar& g, Unit unit) : g_(g), unit_(unit) {}

  // From low to high, both with as many digits.
  Node between(const std::string& low, const std::string& high) { return span(low, high, 0, 0, true, true); }

 private:
  Node span(const std::string& low, const std::string& high, size_t at, uint64_t rest, bool on_low, bool on_high) {
    const size_t left = low.size() - at;
    if (!on_low && !on_high) return free(left, rest);
    if (left == 0) return rest == 0 ? Grammar::kReturn : g_.never();
    std::vector<Node> ways;
    for (char d = on_low ? low[at] : '0'; d <= (on_high ? high[at] : '9'); ++d)
      ways.push_back(
          digit(d, left, span(low, high, at + 1, after(rest, d), on_low && d == low[at], on_high && d == high[at])));
    return g_.either(ways);
  }
  Node free(size_t left, uint64_t rest) {
    if (left == 0) return rest == 0 ? Grammar::kReturn : g_.never();
    if (free_.size() <= left) free_.resize(left + 1);
    auto& row = free_[left];
    row.resize(unit_.digits);
    if (row[rest]) return *row[rest];
    std::vector<Node> ways;
    for (char d = '0'; d <= '9'; ++d) ways.push_back(digit(d, left, free(left - 1, after(rest, d))));
    const Node all = g_.either(ways);
    free_[left][rest] = all;
    return all;
  }
  Node digit(char d, size_t left, Node next) {
    const bool point = unit_.decimals > 0 && left == static_cast<size_t>(unit_.decimals);
    const Node self = g_.bytes(static_cast<uint8_t>(d), static_cast<uint8_t>(d), next);
    return point ? g_.literal(".", self) : self;
  }
  uint64_t after(uint64_t rest, char d) const { return (rest * 10 + static_cast<uint64_t>(d - '0')) % unit_.digits; }

  Grammar& g_;
  const Unit unit_;
  std::vector<std::vector<std::optional<Node>>> free_;  // [digits left][remainder]
};

std::string padded(uint64_t n, size_t digits) {
  const std::string text = std::to_string(n);
  return std::string(digits > text.size() ? digits - text.size() : 0, '0') + text;
}

std::string spelled(uint64_t n, int decimals) {
  std::string text = padded(n, static_cast<size_t>(decimals) + 1);
  if (decimals > 0) text.insert(text.size() - static_cast<size_t>(decimals), ".");
  return text;
}

// From low to high, without a sign.
Node magnitudes(Grammar& g, uint64_t low, uint64_t high, Unit unit, const std::string& where) {
  const uint64_t first = (low + unit.digits - 1) / unit.digits, last = high / unit.digits;
  if (first > last) return g.never();
  if (last - first < kFewEnough) {
    std::vector<std::string> all;
    for (uint64_t n = first; n <= last; ++n) all.push_back(spelled(n * unit.digits, unit.decimals));
    return g.one_of(all, Grammar::kReturn);
  }
  require(unit.digits <= kLargestUnit, Fault::Usage, where, ": multiples of more than ", kLargestUnit,
          " are supported within bounds that hold at most ", kFewEnough, " of them");
  const auto shortest = static_cast<size_t>(unit.decimals) + 1;
  const size_t longest = std::max<size_t>(kMostStates / unit.digits, padded(low, shortest).size());
  Digits digits(g, unit);
  std::vector<Node> ways;
  for (std::string from = padded(low, shortest), to = padded(high, shortest); from.size() <= longest;) {
    ways.push_back(digits.between(from, from.size() == to.size() ? to : std::string(from.size(), '9')));
    if (from.size() == to.size()) break;
    from = "1" + std::string(from.size(), '0');
  }
  return g.either(ways);
}

}  // namespace

Unit unit_of(double value, const std::string& where) {
  require(std::isfinite(value) && value > 0 && value < 1e15, Fault::Usage, where, ": must be above 0 and below 1e15");
  char text[400];
  std::string all(text, std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr);
  Unit unit;
  if (const size_t point = all.find('.'); point != std::string::npos) {
    unit.decimals = static_cast<int>(all.size() - point - 1);
    all.erase(point, 1);
  }
  require(all.size() <= 15 && unit.decimals <= 9, Fault::Usage, where, ": so many digits are not supported");
  unit.digits = std::stoull(all);
  return unit;
}

Node multiples(Grammar& g, int64_t min, int64_t max, Unit unit, const std::string& where) {
  std::vector<Node> ways;
  if (max >= 0)
    ways.push_back(
        magnitudes(g, static_cast<uint64_t>(std::max<int64_t>(min, 0)), static_cast<uint64_t>(max), unit, where));
  if (min < 0)
    ways.push_back(g.literal("-", magnitudes(g, static_cast<uint64_t>(std::max<int64_t>(-max, 1)),
                                             static_cast<uint64_t>(-min), unit, where)));
  return g.either(ways);
}

}  // namespace apus::guide
