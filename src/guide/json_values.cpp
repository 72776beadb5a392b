// SPDX-License-Identifier: Apache-2.0
// Strings and numbers of JSON schemas.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "guide/json_schema.h"
#include "guide/multiples.h"
#include "guide/number_range.h"
#include "guide/string_formats.h"
#include "guide/texts.h"

namespace apus::guide {

namespace {

constexpr int64_t kLargestInteger = 999'999'999'999'999'999;  // 18 digits: numbers must not go on for ever
// A number that stays one: within a double's range, and of bounded length.
constexpr const char* kNumber = "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?";
constexpr uint32_t kIndent = 40;  // blanks after a line break

bool matches_integer(const Json& v) {
  return v.is_number_integer() || (v.is_number_float() && v.get<double>() == std::floor(v.get<double>()));
}

}  // namespace

int64_t count_of(const Json& schema, const char* keyword, int64_t otherwise, const std::string& path) {
  const auto it = schema.find(keyword);
  if (it == schema.end()) return otherwise;
  const bool whole = it->is_number_integer() || (it->is_number_float() && *it >= 0 && *it < 1e15 &&
                                                 *it == static_cast<double>(it->get<int64_t>()));
  require(whole && *it >= 0, Fault::Usage, below(path, keyword), ": must be a count, 0 or more");
  return std::min<int64_t>(it->get<int64_t>(), kUnlimited - 1);
}

Node SchemaGrammar::pattern(const std::string& regex, Node next) {
  return add_expr(g_, parse_regex(regex, "schema"), Spelling::Plain, next);
}

// Nothing, a blank, or a line break and an indentation.
Node SchemaGrammar::space(Node next) {
  const Node blank = g_.either(g_.literal(" ", Grammar::kReturn), g_.literal("\t", Grammar::kReturn));
  return g_.either({next, g_.literal(" ", next), g_.literal("\n", g_.call(blank, 0, kIndent, next))});
}

Node SchemaGrammar::text(Node next, uint32_t min, uint32_t max) {
  const auto hex = [&](std::string_view set, Node then) {
    CharSet digits;
    for (const char c : set) digits.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    return g_.chars(normal(std::move(digits)), then);
  };
  static constexpr std::string_view kAny = "0123456789abcdefABCDEF";
  const Node end = Grammar::kReturn;
  const Node one = hex(kAny, end), two = hex(kAny, one), three = hex(kAny, two);
  const Node low_half = g_.literal("\\u", hex("dD", hex("cdefCDEF", two)));
  const Node code = g_.either({hex("0123456789abcefABCEF", three), hex("dD", hex("01234567", two)),
                               hex("dD", hex("89abAB", hex(kAny, hex(kAny, low_half))))});
  const Node escape = g_.literal("\\", g_.either(hex("\"\\/bfnrt", end), g_.literal("u", code)));
  static const CharSet bare = normal({{0x20, '!'}, {'#', '['}, {']', 0x10FFFF}});
  return g_.call(g_.either(g_.chars(bare, end), escape), min, max, next);
}

std::vector<Expr> shapes_of(const Json& schema, const std::string& path) {
  std::vector<Expr> shapes;
  const auto pattern = schema.find("pattern");
  if (pattern != schema.end()) {
    require(pattern->is_string(), Fault::Usage, below(path, "pattern"), ": must be a text");
    shapes.push_back(parse_search(pattern->get<std::string>(), below(path, "pattern")));
  }
  if (const auto f = schema.find("format"); f != schema.end()) {
    require(f->is_string(), Fault::Usage, below(path, "format"), ": must be a text");
    const auto known = format_pattern(f->get<std::string>());
    // Beside a pattern, an unknown name is only a name for it.
    require(known || pattern != schema.end(), Fault::Usage, below(path, "format"), ": ", json_text(*f),
            " is not supported; known are ", known_formats(), "; or give a pattern");
    if (known && !known->empty()) shapes.push_back(parse_regex(*known, below(path, "format")));
  }
  return shapes;
}

Expr of_length(int64_t min, int64_t max) {
  Expr all{.kind = Expr::Repeat, .min = static_cast<uint32_t>(min), .max = static_cast<uint32_t>(max)};
  all.parts.push_back({.kind = Expr::Chars, .set = all_chars()});
  return all;
}

Node SchemaGrammar::string(const Json& schema, const std::string& path) {
  const int64_t min = count_of(schema, "minLength", 0, path), max = count_of(schema, "maxLength", kUnlimited, path);
  const Node close = g_.literal("\"", Grammar::kReturn);
  std::vector<Expr> wanted = shapes_of(schema, path);
  std::vector<std::string> excluded;
  for (const Json& v : excluded_values(schema))
    if (v.is_string()) excluded.push_back(v);
  const bool free = excluded.empty();
  if (wanted.empty() && free)
    return g_.literal("\"", text(close, static_cast<uint32_t>(min), static_cast<uint32_t>(max)));
  // Whether one of them sees to the length.
  const bool fits = std::any_of(wanted.begin(), wanted.end(), [&](const Expr& shape) {
    const Lengths l = lengths(shape);
    return l.min >= static_cast<uint64_t>(min) && l.max <= static_cast<uint64_t>(max);
  });
  if (wanted.size() == 1 && fits && free)
    return g_.literal("\"", add_pattern(g_, wanted[0], Spelling::JsonString, close, path));
  if (!fits) wanted.push_back(of_length(min, max));
  Texts texts(path);
  for (const Expr& shape : wanted) texts.add(shape);
  const auto good = static_cast<std::ptrdiff_t>(wanted.size());
  texts.add(excluded);
  const Node inside = texts.node(g_, Spelling::JsonString, all_chars(), [&](const Texts::Matches& m) {
    const auto border = m.begin() + good;
    return std::find(m.begin(), border, false) == border && !*border ? std::optional(close) : std::nullopt;
  });
  return g_.literal("\"", inside);
}

namespace {
// The tighter of an inclusive and an exclusive bound. Drafts before 6 have the exclusive one as a flag.
std::optional<Bound> bound(const Json& schema, const char* inclusive, const char* exclusive, int sign,
                           const std::string& path) {
  std::optional<Bound> found;
  const auto consider = [&](const char* word, bool included) {
    const auto it = schema.find(word);
    if (it == schema.end() || it->is_boolean()) return;
    require(it->is_number(), Fault::Usage, below(path, word), ": must be a number");
    const double value = it->get<double>();
    if (!found || sign * value > sign * found->value || (value == found->value && !included))
      found = Bound{value, included};
  };
  consider(inclusive, true);
  consider(exclusive, false);
  if (const auto flag = schema.find(exclusive); found && flag != schema.end() && *flag == true) found->included = false;
  return found;
}

std::optional<Unit> unit(const Json& schema, const std::string& path) {
  const auto it = schema.find("multipleOf");
  if (it == schema.end()) return std::nullopt;
  require(it->is_number(), Fault::Usage, below(path, "multipleOf"), ": must be a number");
  return unit_of(it->get<double>(), below(path, "multipleOf"));
}

// The bounds in units of the last decimal, both included.
struct Whole {
  int64_t min = -kLargestInteger, max = kLargestInteger;
};

// The first whole number of units that a lower bound allows (the last one of an upper). What 64 bits cannot hold is
// cut to what they can: nothing: a lower bound above all that, or an upper below.
std::optional<int64_t> whole_limit(const Json& bound, bool included, bool lower, int decimals) {
  const auto one_less = [](int64_t n) { return n == INT64_MIN ? std::nullopt : std::optional(n - 1); };
  const auto one_more = [](int64_t n) { return n == INT64_MAX ? std::nullopt : std::optional(n + 1); };
  if (decimals == 0 && bound.is_number_integer()) {
    if (bound.is_number_unsigned() && bound.get<uint64_t>() > INT64_MAX)
      return lower ? std::nullopt : std::optional(INT64_MAX);
    const auto n = bound.get<int64_t>();
    return included ? n : lower ? one_more(n) : one_less(n);
  }
  constexpr double kEnd = 9223372036854775808.0;  // 2^63
  const double x = bound.get<double>() * std::pow(10.0, decimals), near = std::nearbyint(x);
  if (x >= kEnd) return lower ? std::nullopt : std::optional(INT64_MAX);
  if (x < -kEnd) return lower ? std::optional(INT64_MIN) : std::nullopt;
  const double exact = std::fabs(x - near) <= 1e-12 * std::max(1.0, std::fabs(x)) ? near : x;
  const auto n = static_cast<int64_t>(lower ? std::ceil(exact) : std::floor(exact));
  return included || static_cast<double>(n) != exact ? n : lower ? one_more(n) : one_less(n);
}

Whole whole_bounds(const Json& schema, const std::string& path, int decimals) {
  Whole out;
  std::optional<int64_t> least, most;
  const auto narrow = [&](const char* word, const char* flag, bool included, bool lower) {
    const auto it = schema.find(word);
    if (it == schema.end() || it->is_boolean()) return;
    require(it->is_number(), Fault::Usage, below(path, word), ": must be a number");
    const bool shut = schema.contains(flag) && schema[flag] == true;  // drafts before 6
    const auto limit = whole_limit(*it, included && !shut, lower, decimals);
    require(limit.has_value(), Fault::Usage, below(path, word), ": ", json_text(*it),
            " leaves no number that 64 bits can hold");
    if (lower)
      least = std::max(least.value_or(*limit), *limit);
    else
      most = std::min(most.value_or(*limit), *limit);
  };
  narrow("minimum", "exclusiveMinimum", true, true);
  narrow("exclusiveMinimum", "exclusiveMinimum", false, true);
  narrow("maximum", "exclusiveMaximum", true, false);
  narrow("exclusiveMaximum", "exclusiveMaximum", false, false);
  // Where no bound is given, numbers end so that they do not go on for ever, but not before the other bound.
  out.min = least.value_or(most && *most < -kLargestInteger ? INT64_MIN : -kLargestInteger);
  out.max = most.value_or(least && *least > kLargestInteger ? INT64_MAX : kLargestInteger);
  return out;
}
}  // namespace

Node SchemaGrammar::integer(const Json& schema, const std::string& path) {
  std::optional<Unit> of = unit(schema, path);
  // An integer is a multiple of 0.25 when it is one of 1, of 0.6 when it is one of 3.
  if (of) {
    uint64_t scale = 1;
    for (int i = 0; i < of->decimals; ++i) scale *= 10;
    of = Unit{of->digits / std::gcd(of->digits, scale), 0};
  }
  const Whole whole = whole_bounds(schema, path, 0);
  std::set<int64_t> holes;
  for (const Json& v : excluded_values(schema))
    if (matches_integer(v) && v >= whole.min && v <= whole.max) holes.insert(v.get<int64_t>());
  std::vector<Node> ways;
  const auto stretch = [&](int64_t from, int64_t to) {
    if (from > to) return;
    ways.push_back(of && of->digits > 1 ? multiples(g_, from, to, *of, below(path, "multipleOf"))
                                        : pattern(integer_pattern(from, to), Grammar::kReturn));
  };
  int64_t from = whole.min;
  for (const int64_t hole : holes) {
    if (hole > INT64_MIN) stretch(from, hole - 1);
    if (hole == INT64_MAX) return g_.either(ways);
    from = hole + 1;
  }
  stretch(from, whole.max);
  return g_.either(ways);
}

Node SchemaGrammar::number(const Json& schema, const std::string& path) {
  std::set<double> holes;
  for (const Json& v : excluded_values(schema))
    if (v.is_number()) holes.insert(v.get<double>());
  if (const auto of = unit(schema, path)) {
    require(holes.empty(), Fault::Usage, below(path, "not"),
            ": beside multipleOf, numbers can be excluded where the type is integer");
    const Whole whole = whole_bounds(schema, path, of->decimals);
    return multiples(g_, whole.min, whole.max, *of, below(path, "multipleOf"));
  }
  const auto low = bound(schema, "minimum", "exclusiveMinimum", 1, path),
             high = bound(schema, "maximum", "exclusiveMaximum", -1, path);
  if (!low && !high && holes.empty()) return pattern(kNumber, Grammar::kReturn);
  // Numbers of so many digits are whole ones.
  if ((low && low->value >= kEndOfFractions) || (high && high->value <= -kEndOfFractions)) return integer(schema, path);
  std::vector<Node> ways;
  std::optional<Bound> from = low;
  const auto stretch = [&](const Bound* to) {
    ways.push_back(pattern(number_pattern(from ? &*from : nullptr, to), Grammar::kReturn));
  };
  for (const double hole : holes) {
    if ((low && hole < low->value) || (high && hole > high->value) || std::fabs(hole) >= kEndOfFractions) continue;
    const Bound border{hole, false};
    stretch(&border);
    from = border;
  }
  stretch(high ? &*high : nullptr);
  return g_.either(ways);
}

}  // namespace apus::guide
