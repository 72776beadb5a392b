// SPDX-License-Identifier: Apache-2.0
#include "guide/number_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace apus::guide {

namespace {

constexpr size_t kSignificant = 15;  // decimal digits that a double holds

std::string digits(size_t n) { return n == 0 ? "" : n == 1 ? "[0-9]" : str("[0-9]{", n, "}"); }
std::string range(char low, char high) { return low == high ? std::string(1, low) : str("[", low, "-", high, "]"); }
std::string any_of(const std::vector<std::string>& ways) {
  if (ways.size() == 1) return ways[0];
  std::string all;
  for (const auto& w : ways) all += '|' + w;
  return "(?:" + all.substr(1) + ")";
}

// Digits as many as in s, and not less (more) than it.
std::string at_least(const std::string& s) {
  if (s.empty()) return "";
  std::vector<std::string> ways{s[0] + at_least(s.substr(1))};
  if (s[0] < '9') ways.push_back(range(static_cast<char>(s[0] + 1), '9') + digits(s.size() - 1));
  return any_of(ways);
}
std::string at_most(const std::string& s) {
  if (s.empty()) return "";
  std::vector<std::string> ways{s[0] + at_most(s.substr(1))};
  if (s[0] > '0') ways.push_back(range('0', static_cast<char>(s[0] - 1)) + digits(s.size() - 1));
  return any_of(ways);
}

std::string same_length(const std::string& low, const std::string& high) {
  if (low.empty()) return "";
  if (low[0] == high[0]) return low[0] + same_length(low.substr(1), high.substr(1));
  std::vector<std::string> ways{low[0] + at_least(low.substr(1))};
  if (high[0] - low[0] > 1)
    ways.push_back(range(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)) + digits(low.size() - 1));
  ways.push_back(high[0] + at_most(high.substr(1)));
  return any_of(ways);
}

std::string naturals(uint64_t low, uint64_t high) {
  std::vector<std::string> ways;
  for (std::string from = std::to_string(low), to = std::to_string(high);;) {
    const std::string end = from.size() == to.size() ? to : std::string(from.size(), '9');
    ways.push_back(same_length(from, end));
    if (from.size() == to.size()) return any_of(ways);
    from = "1" + std::string(from.size(), '0');
  }
}

// A bound as decimal digits: whole part and fraction, without sign.
struct Decimal {
  uint64_t whole = 0;
  std::string fraction;
};
// The one next above where there are too many digits; `cut`: that was so.
Decimal decimal(double value, bool upwards, bool& cut) {
  char text[1100];
  const auto end = std::to_chars(text, text + sizeof text, std::fabs(value), std::chars_format::fixed).ptr;
  const std::string all(text, end);
  const size_t point = all.find('.');
  Decimal d{std::stoull(all.substr(0, point)), point == std::string::npos ? "" : all.substr(point + 1)};
  const size_t most = kSignificant - std::min(kSignificant, std::to_string(d.whole).size() + 1);
  cut = d.fraction.size() > most;
  if (!cut) return d;
  d.fraction.resize(most);
  if (!upwards) return d;
  for (size_t i = d.fraction.size(); i-- > 0;) {
    if (++d.fraction[i] <= '9') return d;
    d.fraction[i] = '0';
  }
  ++d.whole;
  return d;
}

std::string up_to(size_t n) { return str("[0-9]{0,", n, "}"); }

// The numbers between two bounds that have at most `places` digits behind the point: few enough that a double tells the
// numbers near a bound from it.
class Fractions {
 public:
  explicit Fractions(size_t places) : places_(places) {}

  // What may stand behind a whole part that equals the bound's: "" or ".digits".
  std::string above(const std::string& f, bool included) const {
    std::vector<std::string> ways;
    if (f.empty()) return included ? any() : "\\." + not_zero(places_);
    for (size_t i = 0; i < f.size(); ++i)
      if (f[i] < '9')
        ways.push_back("\\." + f.substr(0, i) + range(static_cast<char>(f[i] + 1), '9') + up_to(places_ - i - 1));
    const size_t rest = places_ - f.size();
    ways.push_back("\\." + f + (included ? up_to(rest) : not_zero(rest)));
    return any_of(ways);
  }
  std::string below(const std::string& f, bool included) const {
    std::vector<std::string> ways;
    if (f.empty()) return included ? str("(?:\\.0{1,", places_, "})?") : "";
    ways.push_back("");
    for (size_t i = 0; i < f.size(); ++i) {
      if (i > 0) ways.push_back("\\." + f.substr(0, i));
      if (f[i] > '0')
        ways.push_back("\\." + f.substr(0, i) + range('0', static_cast<char>(f[i] - 1)) + up_to(places_ - i - 1));
    }
    if (included) ways.push_back(str("\\.", f, "0{0,", places_ - f.size(), "}"));
    return any_of(ways);
  }

  // Fractions between two: digit by digit while they are the same.
  std::string between(std::string low, bool low_in, std::string high, bool high_in) const {
    const size_t size = std::max(low.size(), high.size());
    low.resize(size, '0');
    high.resize(size, '0');
    std::vector<std::string> ways;
    if (low == high) {
      if (low_in && high_in) ways.push_back((size ? "\\." : "") + low);
      return ways.empty() ? "" : ways[0];
    }
    const auto left = [&](size_t used) { return up_to(places_ - used); };
    size_t same = 0;
    while (low[same] == high[same]) ++same;
    const std::string head = "\\." + low.substr(0, same);
    if (high[same] - low[same] > 1)
      ways.push_back(head + range(static_cast<char>(low[same] + 1), static_cast<char>(high[same] - 1)) +
                     left(same + 1));
    for (size_t i = same + 1; i < size; ++i) {
      if (low[i] < '9')
        ways.push_back("\\." + low.substr(0, i) + range(static_cast<char>(low[i] + 1), '9') + left(i + 1));
      if (high[i] > '0')
        ways.push_back("\\." + high.substr(0, i) + range('0', static_cast<char>(high[i] - 1)) + left(i + 1));
    }
    ways.push_back("\\." + low + (low_in ? left(size) : not_zero(places_ - size)));
    if (high_in) ways.push_back("\\." + high + str("0{0,", places_ - size, "}"));
    if (low_in && low.find_first_not_of('0') == std::string::npos) ways.push_back("");
    return any_of(ways);
  }

  // Numbers without sign from low to high; high null: without end.
  std::vector<std::string> magnitudes(const Decimal& low, bool low_in, const Decimal* high, bool high_in) const {
    const uint64_t most = 999'999'999'999'999;
    std::vector<std::string> ways;
    if (high && high->whole == low.whole) {
      const std::string f = between(low.fraction, low_in, high->fraction, high_in);
      const bool one = low.fraction == high->fraction;
      if (!f.empty() || (one && low_in && high_in)) ways.push_back(std::to_string(low.whole) + f);
      return ways;
    }
    ways.push_back(std::to_string(low.whole) + above(low.fraction, low_in));
    const uint64_t last = high ? high->whole : most + 1;
    if (last > low.whole + 1) ways.push_back(naturals(low.whole + 1, last - 1) + any());
    if (high && (high_in || !high->fraction.empty()))
      ways.push_back(std::to_string(high->whole) + below(high->fraction, high_in));
    return ways;
  }

 private:
  std::string any() const { return str("(?:\\.[0-9]{1,", places_, "})?"); }
  std::string not_zero(size_t most) const { return str("0{0,", most - 1, "}[1-9][0-9]{0,3}"); }
  const size_t places_;
};

}  // namespace

std::string integer_pattern(int64_t min, int64_t max) {
  if (min > max) return "[^\\s\\S]";
  std::vector<std::string> ways;
  const auto size_of = [](int64_t n) { return n < 0 ? ~static_cast<uint64_t>(n) + 1 : static_cast<uint64_t>(n); };
  if (min < 0) ways.push_back("-" + naturals(max < 0 ? size_of(max) : 1, size_of(min)));
  if (max >= 0) ways.push_back(naturals(min > 0 ? static_cast<uint64_t>(min) : 0, static_cast<uint64_t>(max)));
  return any_of(ways);
}

std::string number_pattern(const Bound* min, const Bound* max) {
  const auto nothing = "[^\\s\\S]";
  if (min && min->value <= -kEndOfFractions) min = nullptr;  // all numbers that are written are above it
  if (max && max->value >= kEndOfFractions) max = nullptr;
  const double low = min ? min->value : -1e300, high = max ? max->value : 1e300;
  bool low_in = min && min->included, high_in = max && max->included;
  if (low > high || (low == high && !(low_in && high_in))) return nothing;
  bool low_cut = false, high_cut = false;
  const Decimal zero, least = min ? decimal(low, low > 0, low_cut) : zero,
                      most = max ? decimal(high, high < 0, high_cut) : zero;
  low_in |= low_cut;
  high_in |= high_cut;
  if (low_cut && high_cut && std::signbit(low) == std::signbit(high)) {  // they may have passed each other
    const auto before = [](const Decimal& a, const Decimal& b) {
      return a.whole != b.whole ? a.whole < b.whole : a.fraction < b.fraction;
    };
    if (low > 0 ? before(most, least) : before(least, most)) return nothing;
  }
  std::vector<std::string> ways;
  const size_t whole = std::to_string(std::max(least.whole, most.whole)).size();
  const Fractions numbers(
      std::max(std::min<size_t>(12, kSignificant - whole), std::max(least.fraction.size(), most.fraction.size()) + 1));
  if (high > 0 || (high == 0 && high_in))
    ways = numbers.magnitudes(low > 0 ? least : zero, low < 0 || low_in, max ? &most : nullptr, high_in);
  if (low < 0)
    for (const auto& w :
         numbers.magnitudes(high < 0 ? most : zero, high < 0 && high_in, min ? &least : nullptr, low_in))
      ways.push_back("-" + w);
  return ways.empty() ? nothing : any_of(ways);
}

}  // namespace apus::guide
