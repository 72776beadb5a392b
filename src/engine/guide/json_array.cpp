// SPDX-License-Identifier: Apache-2.0
// Arrays of JSON schemas.
#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>

#include "engine/guide/json_schema.h"

namespace apus::guide {

namespace {

constexpr int64_t kMostUnique = 8;     // different values: one state for each set of those that were used
constexpr int64_t kMostCounted = 500;  // states of arrays that must contain something

std::string below(const std::string& path, const std::string& name) { return path + "/" + name; }

// All values of a schema, if they are few and listed.
std::optional<Json> listed_values(const Json& schema) {
  if (!schema.is_object()) return std::nullopt;
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

}  // namespace

Node SchemaGrammar::array(const Json& schema, const std::string& path) {
  for (const Json& v : excluded_values(schema))
    require(!v.is_array(), Fault::Usage, below(path, "not"), ": lists cannot be excluded in guided answers");
  const int64_t min = count_of(schema, "minItems", 0, path), max = count_of(schema, "maxItems", kUnlimited, path);
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

// Of a few listed values, in any order: a state for each set of values that were used.
Node SchemaGrammar::unique_items(const Json& item, int64_t min, int64_t max, const std::string& path) {
  const auto values = listed_values(resolved(item, path));
  require(values && static_cast<int64_t>(values->size()) <= kMostUnique, Fault::Usage, below(path, "uniqueItems"),
          ": supported for items of at most ", kMostUnique, " listed values (enum, const, boolean); leave it out");
  const size_t count = values->size(), sets = size_t{1} << count;
  const Node end = g_.literal("]", Grammar::kReturn), close = space(end);
  std::vector<Node> after(sets);  // what may follow once these are used; larger sets first
  for (size_t used = sets; used-- > 0;) {
    const int64_t n = std::popcount(used);
    std::vector<Node> ways;
    if (n >= min) ways.push_back(n == 0 ? end : close);
    for (size_t i = 0; n < max && i < count; ++i) {
      if (used >> i & 1) continue;
      const Node one = space(g_.literal(json_text((*values)[i]), after[used | size_t{1} << i]));
      ways.push_back(n == 0 ? one : g_.literal(",", one));
    }
    after[used] = g_.either(ways);
  }
  return g_.literal("[", after[0]);
}

// States: how many items there are, as far as that matters, and how many of them fit `contains`.
Node SchemaGrammar::items_that_contain(const Json& schema, const Json& first, const Json& rest, int64_t min,
                                       int64_t max, const std::string& path) {
  require(!schema.contains("maxContains"), Fault::Usage, below(path, "maxContains"), ": is not supported in guided answers");
  const int64_t need = count_of(schema, "minContains", 1, path);
  const auto fixed = static_cast<int64_t>(first.size());
  const int64_t counted = max != kUnlimited ? max : std::max({fixed, min, int64_t{1}});
  require((counted + 1) * (need + 1) <= kMostCounted, Fault::Usage, below(path, "contains"),
          ": with so many items it is not supported; lower minItems, maxItems or minContains");
  const Node end = g_.literal("]", Grammar::kReturn), close = space(end);
  const auto item_at = [&](int64_t i) { return i < fixed ? first[static_cast<size_t>(i)] : rest; };
  const auto hit_at = [&](int64_t i) { return Json{{"allOf", Json::array({item_at(i), schema["contains"]})}}; };
  const auto columns = static_cast<size_t>(need + 1);
  // From the last number of items back. Without a limit the last row goes on to itself.
  std::vector<Node> next(columns, g_.never()), row(columns);
  if (max == kUnlimited)
    for (Node& n : next) n = g_.reserve();
  const std::vector<Node> loop = next;
  for (int64_t i = counted; i >= 0; --i) {
    for (int64_t found = 0; found <= need; ++found) {
      std::vector<Node> ways;
      if (i >= min && found >= need) ways.push_back(i == 0 ? end : close);
      if (i < max) {
        const Node any = space(value(item_at(i), below(path, "items"), next[static_cast<size_t>(found)]));
        ways.push_back(i == 0 ? any : g_.literal(",", any));
        if (found < need) {
          const Node hit = space(value(hit_at(i), below(path, "contains"), next[static_cast<size_t>(found + 1)]));
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
