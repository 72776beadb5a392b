// SPDX-License-Identifier: Apache-2.0
// Arrays of JSON schemas.
#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"

namespace apus::guide {

namespace {

// Different values in any order: one state for each set of those that were used.
constexpr size_t kMostUnique = 8;
constexpr size_t kMostInOrder = 250;      // in the order of the schema
constexpr int64_t kMostOrdered = 20'000;  // states of those: values times numbers of items
constexpr int64_t kMostCounted = 500;     // states of arrays that must contain something

// The whole numbers of a schema that says no more than their bounds, if they are few.
std::optional<Json> listed_range(const Json& schema) {
  if (schema.value("type", Json()) != "integer") return std::nullopt;
  for (const auto& [word, value] : schema.items())
    if (word != "type" && word != "minimum" && word != "maximum" && !is_annotation(word)) return std::nullopt;
  const Json low = schema.value("minimum", Json()), high = schema.value("maximum", Json());
  if (!low.is_number_integer() || !high.is_number_integer()) return std::nullopt;
  const double count = high.get<double>() - low.get<double>() + 1;
  if (count < 1 || count > static_cast<double>(kMostInOrder) || std::abs(low.get<double>()) > 1e15) return std::nullopt;
  Json values = Json::array();
  for (int64_t n = low.get<int64_t>(); n <= high.get<int64_t>(); ++n) values.push_back(n);
  return values;
}

// All values of a schema, if they are few and listed.
std::optional<Json> listed_values(const Json& schema) {
  if (!schema.is_object()) return std::nullopt;
  if (auto range = listed_range(schema)) return range;
  Json values;
  if (schema.contains("enum") || schema.contains("const"))
    values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  else if (schema.value("type", Json()) == "boolean")
    values = Json::array({true, false});
  for (const auto& [word, value] : schema.items())
    if (word != "enum" && word != "const" && !is_annotation(word) && !(word == "type" && value == "boolean"))
      return std::nullopt;
  if (!values.is_array()) return std::nullopt;
  Json different = Json::array();
  for (const Json& v : values)
    if (!contains_value(different, v)) different.push_back(v);
  return different;
}

// Free texts differ for certain when they begin differently: as many groups of first characters as there may be items.
// Letters by about equal use, Chinese characters by place.
constexpr const char* kBeginnings[kMostUnique] = {
    "A-Ba-b0-4\\u4e00-\\u57ff", "C-Dc-d\\u5800-\\u61ff", "E-He-h\\u6200-\\u6bff", "I-Li-l\\u6c00-\\u75ff",
    "M-Om-o5-9\\u7600-\\u7fff", "P-Rp-r\\u8000-\\u89ff", "S-Ts-t\\u8a00-\\u93ff", "^A-Sa-s0-9Tt\\u4e00-\\u93ff"};

std::vector<Json> separate_texts(const Json& item) {
  std::vector<Json> out;
  for (const char* first : kBeginnings)
    out.push_back({{"allOf", Json::array({item, {{"type", "string"}, {"pattern", std::string("^[") + first + "]"}}})}});
  return out;
}

}  // namespace

Node SchemaGrammar::array(const Json& schema, const std::string& path) {
  for (const Json& v : excluded_values(schema))
    require(!v.is_array(), Fault::Usage, below(path, "not"), ": lists cannot be excluded in guided answers");
  const int64_t min = count_of(schema, "minItems", 0, path);
  int64_t max = count_of(schema, "maxItems", kUnlimited, path);
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
  // Where none may stand, the list ends before.
  const auto shut = std::find(first.begin(), first.end(), Json(false));
  max = std::min<int64_t>(max, shut == first.end() ? max : shut - first.begin());
  const auto unique = schema.find("uniqueItems");
  if (unique != schema.end() && *unique != false && max > 1) {
    require(first.empty() && !schema.contains("contains"), Fault::Usage, below(path, "uniqueItems"),
            ": beside prefixItems or contains it is not supported");
    return unique_items(rest, min, max, path);
  }
  if (schema.contains("contains")) return items_that_contain(schema, first, rest, min, max, path);
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

// Of listed values, or of texts. Of a few in any order: a state for each set of values that were used.
Node SchemaGrammar::unique_items(const Json& item, int64_t min, int64_t max, const std::string& path) {
  const Json& plain = resolved(item, path);
  const auto values = listed_values(plain);
  const bool texts = !values && plain.is_object() && plain.value("type", Json()) == "string";
  require(texts || (values && values->size() <= kMostInOrder), Fault::Usage, below(path, "uniqueItems"),
          ": supported for items that are texts, or at most ", kMostInOrder,
          " listed values (enum, const, boolean, an integer with minimum and maximum); leave it out");
  if (values && values->size() > kMostUnique) return ordered_items(*values, min, max, path);
  std::vector<Node> items;
  if (texts)
    for (const Json& one : separate_texts(plain)) items.push_back(rule(one, below(path, "items")));
  else
    for (const Json& value : *values) items.push_back(g_.literal(json_text(value), Grammar::kReturn));
  const size_t count = items.size(), sets = size_t{1} << count;
  const Node end = g_.literal("]", Grammar::kReturn), close = space(end);
  std::vector<Node> after(sets);  // what may follow once these are used; larger sets first
  for (size_t used = sets; used-- > 0;) {
    const int64_t n = std::popcount(used);
    std::vector<Node> ways;
    if (n >= min) ways.push_back(n == 0 ? end : close);
    for (size_t i = 0; n < max && i < count; ++i) {
      if (used >> i & 1) continue;
      const Node one = space(g_.call(items[i], 1, 1, after[used | size_t{1} << i]));
      ways.push_back(n == 0 ? one : g_.literal(",", one));
    }
    after[used] = g_.either(ways);
  }
  return g_.literal("[", after[0]);
}

// Of more listed values: each at most once, in the order of the schema. States: which are left, and how many items
// there are, as far as that matters.
Node SchemaGrammar::ordered_items(const Json& values, int64_t min, int64_t max, const std::string& path) {
  const auto left = static_cast<int64_t>(values.size());
  const int64_t most = std::min(max, left), counted = max < left ? max : std::max<int64_t>(min, 1);
  require(left * (counted + 1) <= kMostOrdered, Fault::Usage, below(path, "uniqueItems"),
          ": with so many values and items it is not supported; lower minItems or maxItems");
  if (min > left) return g_.never();
  const Node end = g_.literal("]", Grammar::kReturn), close = space(end);
  std::vector<Node> next;
  for (int64_t n = 0; n <= counted; ++n) next.push_back(n < min ? g_.never() : n == 0 ? end : close);
  for (size_t i = values.size(); i-- > 0;) {
    std::vector<Node> here;
    for (int64_t n = 0; n <= counted; ++n) {
      const Node after = next[static_cast<size_t>(std::min(n + 1, counted))], skipped = next[static_cast<size_t>(n)];
      if (n == most) {
        here.push_back(skipped);
        continue;
      }
      const Node one = space(g_.literal(json_text(values[i]), after));
      here.push_back(g_.either(n == 0 ? one : g_.literal(",", one), skipped));
    }
    next = std::move(here);
  }
  return g_.literal("[", next[0]);
}

// States: how many items there are, as far as that matters, and how many of them fit `contains`. Where there may only
// be so many of those, every other item must be known not to fit.
Node SchemaGrammar::items_that_contain(const Json& schema, const Json& first, const Json& rest, int64_t min,
                                       int64_t max, const std::string& path) {
  const int64_t need = count_of(schema, "minContains", 1, path);
  const int64_t allowed = count_of(schema, "maxContains", kUnlimited, path);
  const bool exact = allowed != kUnlimited;
  const Json other = exact ? complement(schema["contains"], below(path, "maxContains")) : Json(true);
  if (need > allowed) return g_.never();
  const int64_t last = exact ? allowed : need;  // hits beyond these are not counted, or not allowed
  const auto fixed = static_cast<int64_t>(first.size());
  const int64_t counted = max != kUnlimited ? max : std::max({fixed, min, int64_t{1}});
  require(last <= kMostCounted && counted <= kMostCounted && (counted + 1) * (last + 1) <= kMostCounted, Fault::Usage,
          below(path, "contains"),
          ": with so many items it is not supported; lower minItems, maxItems, minContains or maxContains");
  const Node end = g_.literal("]", Grammar::kReturn), close = space(end);
  const auto item_at = [&](int64_t i) { return i < fixed ? first[static_cast<size_t>(i)] : rest; };
  const auto both = [](const Json& a, const Json& b) { return Json{{"allOf", Json::array({a, b})}}; };
  const auto columns = static_cast<size_t>(last + 1);
  // From the last number of items back. Without a limit the last row goes on to itself.
  std::vector<Node> next(columns, g_.never()), row(columns);
  if (max == kUnlimited)
    for (Node& n : next) n = g_.reserve();
  const std::vector<Node> loop = next;
  for (int64_t i = counted; i >= 0; --i) {
    for (int64_t found = 0; found <= last; ++found) {
      std::vector<Node> ways;
      if (i >= min && found >= need) ways.push_back(i == 0 ? end : close);
      if (i < max) {
        const Json item = item_at(i), any_item = exact ? both(item, other) : item;
        const Node any = space(value(any_item, below(path, "items"), next[static_cast<size_t>(found)]));
        ways.push_back(i == 0 ? any : g_.literal(",", any));
        if (found < last) {
          const Json fitting = both(item, schema["contains"]);
          const Node hit = space(value(fitting, below(path, "contains"), next[static_cast<size_t>(found + 1)]));
          ways.push_back(i == 0 ? hit : g_.literal(",", hit));
        }
      }
      row[static_cast<size_t>(found)] = g_.either(ways);
    }
    if (i == counted && max == kUnlimited)
      for (size_t c = 0; c < columns; ++c) g_.define(loop[c], row[c]);
    next = row;
  }
  return g_.literal("[", next[0]);
}

}  // namespace apus::guide
