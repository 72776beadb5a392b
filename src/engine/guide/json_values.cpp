// SPDX-License-Identifier: Apache-2.0
// Strings, numbers and arrays of JSON schemas.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/guide/json_schema.h"
#include "engine/guide/number_range.h"
#include "engine/guide/string_formats.h"

namespace apus::guide {

namespace {

constexpr int64_t kLargestInteger = 999'999'999'999'999'999;  // 18 digits: numbers must not go on for ever
// A number that stays one: within a double's range, and of bounded length.
constexpr const char* kNumber = "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,16})?(?:[eE][+-]?[0-9]{1,2})?";
constexpr uint32_t kIndent = 40;  // blanks after a line break

std::string below(const std::string& path, const std::string& name) { return path + "/" + name; }

int64_t count(const Json& schema, const char* keyword, int64_t otherwise, const std::string& path) {
  const auto it = schema.find(keyword);
  if (it == schema.end()) return otherwise;
  const bool whole =
      it->is_number_integer() || (it->is_number_float() && *it == static_cast<double>(it->get<int64_t>()));
  require(whole && *it >= 0, Fault::Usage, below(path, keyword), ": must be a count, 0 or more");
  return std::min<int64_t>(it->get<int64_t>(), kUnlimited - 1);
}

}  // namespace

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

Node SchemaGrammar::string(const Json& schema, const std::string& path) {
  const int64_t min = count(schema, "minLength", 0, path), max = count(schema, "maxLength", kUnlimited, path);
  const Node close = g_.literal("\"", Grammar::kReturn);
  std::optional<Expr> shape;
  require(!schema.contains("pattern") || !schema.contains("format"), Fault::Usage, path,
          ": pattern and format together are not supported; keep the pattern");
  if (const auto it = schema.find("pattern"); it != schema.end()) {
    require(it->is_string(), Fault::Usage, below(path, "pattern"), ": must be a text");
    shape = parse_search(it->get<std::string>(), below(path, "pattern"));
  } else if (const auto f = schema.find("format"); f != schema.end()) {
    require(f->is_string(), Fault::Usage, below(path, "format"), ": must be a text");
    const auto known = format_pattern(f->get<std::string>());
    require(known.has_value(), Fault::Usage, below(path, "format"), ": ", json_text(*f),
            " is not supported; known are ", known_formats());
    shape = parse_regex(*known, below(path, "format"));
  }
  if (!shape) return g_.literal("\"", text(close, static_cast<uint32_t>(min), static_cast<uint32_t>(max)));
  const Lengths l = lengths(*shape);
  require(l.min >= static_cast<uint64_t>(min) && l.max <= static_cast<uint64_t>(max), Fault::Usage, path,
          ": minLength or maxLength beside a pattern or format that allows other lengths is not supported; say the "
          "length in the pattern");
  return g_.literal("\"", add_expr(g_, *shape, Spelling::JsonString, close));
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

void check_multiple(const Json& schema, const std::string& path, bool integer) {
  const auto it = schema.find("multipleOf");
  require(it == schema.end() || (integer && *it == 1), Fault::Usage, below(path, "multipleOf"),
          ": not supported in guided answers");
}
}  // namespace

Node SchemaGrammar::integer(const Json& schema, const std::string& path) {
  check_multiple(schema, path, true);
  const auto low = bound(schema, "minimum", "exclusiveMinimum", 1, path),
             high = bound(schema, "maximum", "exclusiveMaximum", -1, path);
  int64_t min = -kLargestInteger, max = kLargestInteger;
  for (const auto& b : {low, high})
    require(!b || std::fabs(b->value) <= 9e15, Fault::Usage, path,
            ": bounds of integers beyond 9e15 are not supported");
  if (low) min = static_cast<int64_t>(std::ceil(low->value)) + (!low->included && low->value == std::ceil(low->value));
  if (high)
    max = static_cast<int64_t>(std::floor(high->value)) - (!high->included && high->value == std::floor(high->value));
  return pattern(integer_pattern(min, max), Grammar::kReturn);
}

Node SchemaGrammar::number(const Json& schema, const std::string& path) {
  check_multiple(schema, path, false);
  const auto low = bound(schema, "minimum", "exclusiveMinimum", 1, path),
             high = bound(schema, "maximum", "exclusiveMaximum", -1, path);
  if (!low && !high) return pattern(kNumber, Grammar::kReturn);
  return pattern(number_pattern(low ? &*low : nullptr, high ? &*high : nullptr, path), Grammar::kReturn);
}

Node SchemaGrammar::array(const Json& schema, const std::string& path) {
  const auto unique = schema.find("uniqueItems");
  require(unique == schema.end() || *unique == false, Fault::Usage, below(path, "uniqueItems"),
          ": not supported in guided answers; leave it out");
  const int64_t min = count(schema, "minItems", 0, path), max = count(schema, "maxItems", kUnlimited, path);
  Json first = Json::array(), rest = true;
  bool closed = false;  // nothing after the first ones unless it is asked for
  const auto list = [&](const char* word) {
    first = schema[word];
    closed = true;
  };
  if (schema.contains("prefixItems")) list("prefixItems");
  if (schema.contains("items")) {
    if (schema["items"].is_array())
      list("items");
    else
      rest = schema["items"], closed = false;
  }
  if (schema.contains("additionalItems") && schema.contains("items") && schema["items"].is_array())
    rest = schema["additionalItems"], closed = false;
  require(first.is_array(), Fault::Usage, below(path, "prefixItems"), ": must be a list of schemas");
  const auto fixed = std::min<int64_t>(static_cast<int64_t>(first.size()), max);
  int64_t least = std::max<int64_t>(min - fixed, 0), most = max == kUnlimited ? kUnlimited : max - fixed;
  if (closed) most = std::min(most, least);
  if (rest == false) most = 0;
  const Node end = Grammar::kReturn, close = space(g_.literal("]", end));
  const std::string at = below(path, "items");
  const auto limit = [](int64_t n) { return static_cast<uint32_t>(n); };
  if (least > most) return g_.never();
  if (fixed == 0) {
    if (most == 0) return g_.literal("[", close);
    const Node item = rule(rest, at);
    const Node more = g_.call(g_.literal(",", space(g_.call(item, 1, 1, end))), limit(std::max<int64_t>(least - 1, 0)),
                              most == kUnlimited ? kUnlimited : limit(most - 1), close);
    const Node some = space(g_.call(item, 1, 1, more));
    return g_.literal("[", least == 0 ? g_.either(g_.literal("]", end), some) : some);
  }
  Node tail = close;
  if (most > 0)
    tail = g_.call(g_.literal(",", space(g_.call(rule(rest, at), 1, 1, end))), limit(least),
                   most == kUnlimited ? kUnlimited : limit(most), close);
  for (auto i = static_cast<size_t>(fixed); i-- > 0;) {
    tail = space(value(first[i], below(below(path, "prefixItems"), std::to_string(i)), tail));
    if (i > 0) tail = g_.literal(",", tail);
  }
  return g_.literal("[", tail);
}

}  // namespace apus::guide
