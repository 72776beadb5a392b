// SPDX-License-Identifier: Apache-2.0
// Two schemas in one. What both say about a member or an item is left as an allOf there,
// to be merged when it is reached.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "guide/json_schema.h"

namespace apus::guide {

namespace {

constexpr size_t kMostBranches = 200;

Json both(const Json& a, const Json& b) {
  if (a == b || b == true) return a;
  if (a == true) return b;
  if (a == false || b == false) return false;
  return {{"allOf", Json::array({a, b})}};
}

Json as_list(const Json& x) { return x.is_array() ? x : Json::array({x}); }

Json united(Json a, const Json& b) {
  for (const Json& x : b)
    if (!contains_value(a, x)) a.push_back(x);
  return a;
}

Json common_types(const Json& a, const Json& b) {
  Json out = Json::array();
  const Json x = as_list(a), y = as_list(b);
  for (const Json& t : x) {
    if (contains_value(y, t))
      out.push_back(t);
    else if (t == "integer" && contains_value(y, "number"))
      out.push_back(t);
    else if (t == "number" && contains_value(y, "integer"))
      out.push_back("integer");
  }
  return out;
}

Json others(const Json& s) { return s.value("additionalProperties", Json(true)); }

// What a schema without this key among its properties says of its value, but for the patterns, which are merged anyway.
Json others_for(const Json& s, const std::string& name, const std::string& path) {
  if (s.contains("patternProperties") && s["patternProperties"].is_object())
    for (const auto& [pattern, value] : s["patternProperties"].items())
      if (key_matches(pattern, name, path)) return true;
  return others(s);
}

void merge_patterns(Json& out, const Json& a, const Json& b, const std::string& path) {
  const Json none = Json::object();
  const Json p = a.value("patternProperties", none), q = b.value("patternProperties", none);
  if (p.empty() && q.empty()) return;
  require(p.empty() || q.empty() || (others(a) == true && others(b) == true), Fault::Usage, path,
          "/patternProperties: two of them beside additionalProperties are not supported");
  Json all = Json::object();
  for (const auto& [pattern, value] : p.items())
    all[pattern] = q.contains(pattern) ? both(value, q[pattern]) : both(value, others(b));
  for (const auto& [pattern, value] : q.items())
    if (!p.contains(pattern)) all[pattern] = both(others(a), value);
  out["patternProperties"] = all;
}

void merge_objects(Json& out, const Json& a, const Json& b, const std::string& path) {
  const Json none = Json::object();
  merge_patterns(out, a, b, path);
  const Json p = a.value("properties", none), q = b.value("properties", none);
  Json all = Json::object();
  const bool listed = a.contains("properties") || b.contains("properties");
  for (const auto& [name, schema] : p.items())
    all[name] = both(schema, q.contains(name) ? q[name] : others_for(b, name, path));
  for (const auto& [name, schema] : q.items())
    if (!p.contains(name)) all[name] = both(others_for(a, name, path), schema);
  if (listed) out["properties"] = all;
  if (a.contains("additionalProperties") || b.contains("additionalProperties"))
    out["additionalProperties"] = both(others(a), others(b));
  if (a.contains("required") && b.contains("required")) out["required"] = united(a["required"], b["required"]);
}

Json product(const Json& x, const Json& y, const std::string& path) {
  require(x.is_array() && y.is_array() && x.size() * y.size() <= kMostBranches, Fault::Usage, path, ": more than ",
          kMostBranches, " combinations of anyOf branches");
  Json out = Json::array();
  for (const Json& a : x)
    for (const Json& b : y) out.push_back(both(a, b));
  return out;
}

// The least common multiple of two whole numbers; of others the larger, where it is a multiple of the smaller.
Json common_multiple(const Json& x, const Json& y, const std::string& path) {
  const double a = x.get<double>(), b = y.get<double>(), parts = std::max(a, b) / std::min(a, b);
  if (std::min(a, b) > 0 && parts == std::floor(parts)) return std::max(a, b) == a ? x : y;
  const bool whole = a == std::floor(a) && b == std::floor(b) && a > 0 && b > 0 && a * b < 1e15;
  require(whole, Fault::Usage, path, "/multipleOf: these two are not supported together in guided answers");
  return std::lcm(static_cast<int64_t>(a), static_cast<int64_t>(b));
}

// A keyword that both have, with different values.
Json merged_keyword(const std::string& word, const Json& x, const Json& y, const std::string& path) {
  if (word == "type") return common_types(x, y);
  if (word.starts_with("min") || (word == "exclusiveMinimum" && x.is_number() && y.is_number())) return std::max(x, y);
  if (word.starts_with("max") || (word == "exclusiveMaximum" && x.is_number() && y.is_number())) return std::min(x, y);
  if (word == "uniqueItems") return true;
  if (word == "multipleOf" && x.is_number() && y.is_number()) return common_multiple(x, y, path);
  if (word == "propertyNames") return both(x, y);
  if (word == "not") return {{"enum", united(x["enum"], y["enum"])}};
  if (word == "anyOf") return product(x, y, path);
  if (word == "enum") {
    Json values = Json::array();
    for (const Json& v : x)
      if (contains_value(y, v)) values.push_back(v);
    return values;
  }
  if (is_annotation(word)) return x;
  fail(Fault::Usage, path, "/", word,
       ": two different ones hold for the same value, which guided answers do not support");
}

// Items as draft 2020-12 writes them.
void modernise_items(Json& schema) {
  if (!schema.contains("items") || !schema["items"].is_array()) return;
  schema["prefixItems"] = schema["items"];
  schema.erase("items");
  if (schema.contains("additionalItems")) schema["items"] = schema["additionalItems"];
}

// Where one of the two lists the first items one by one, both do.
void merge_items(Json& out, const Json& a, const Json& b, const std::string& path) {
  if (!a.contains("prefixItems") && !b.contains("prefixItems")) return;
  const Json none = Json::array(), x = a.value("prefixItems", none), y = b.value("prefixItems", none);
  require(x.is_array() && y.is_array(), Fault::Usage, path, "/prefixItems: must be a list of schemas");
  const auto item = [](const Json& s, const Json& first, size_t i) {
    return i < first.size() ? first[i] : s.value("items", Json(true));
  };
  Json first = Json::array();
  for (size_t i = 0; i < std::max(x.size(), y.size()); ++i) first.push_back(both(item(a, x, i), item(b, y, i)));
  out["prefixItems"] = first;
  if (a.contains("items") || b.contains("items"))
    out["items"] = both(a.value("items", Json(true)), b.value("items", Json(true)));
}

Json plain(const Json& schema) {  // const as an enum of one; references into allOf
  Json out = schema;
  modernise_items(out);
  out.erase("additionalItems");
  for (const char* word : {"$defs", "definitions"}) out.erase(word);
  if (out.contains("const")) {
    const Json value = out["const"];
    if (!out.contains("enum") || contains_value(out["enum"], value))
      out["enum"] = Json::array({value});
    else
      out["enum"] = Json::array();
    out.erase("const");
  }
  // What stands alone says nothing, and must say nothing of another's `contains`.
  if (!out.contains("contains"))
    out.erase("minContains"), out.erase("maxContains");
  else if (!out.contains("minContains"))
    out["minContains"] = 1;
  if (out.contains("$ref")) {
    Json parts = out.value("allOf", Json::array());
    parts.push_back({{"$ref", out["$ref"]}});
    out["allOf"] = parts;
    out.erase("$ref");
  }
  return out;
}

}  // namespace

Json closed(const Json& schema, const std::string& path) {
  if (!schema.is_object()) return schema;
  const bool keys = schema.contains("unevaluatedProperties"), items = schema.contains("unevaluatedItems");
  if (!keys && !items) return schema;
  for (const char* word : {"$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"})
    require(!schema.contains(word), Fault::Usage, path, keys ? "/unevaluatedProperties" : "/unevaluatedItems",
            ": beside ", word, ", in a part of another schema, it is not supported in guided answers");
  require(!items || !schema.contains("contains"), Fault::Usage, path,
          "/unevaluatedItems: beside contains it is not supported in guided answers");
  Json out = schema;
  out.erase("unevaluatedProperties");
  out.erase("unevaluatedItems");
  if (keys && !schema.contains("additionalProperties")) out["additionalProperties"] = schema["unevaluatedProperties"];
  if (!items) return out;
  const bool listed = schema.contains("items") && schema["items"].is_array();
  if (!schema.contains("items"))
    out["items"] = schema["unevaluatedItems"];
  else if (listed && !schema.contains("additionalItems"))
    out["additionalItems"] = schema["unevaluatedItems"];
  return out;
}

Json merged_schemas(const Json& first, const Json& second, const std::string& path) {
  if (first.is_boolean()) return first == true ? second : first;
  if (second.is_boolean()) return second == true ? first : second;
  require(first.is_object() && second.is_object(), Fault::Usage, path, ": a schema must be an object, true or false");
  const Json a = plain(first), b = plain(second);
  Json out = a;
  for (const auto& [word, value] : b.items()) {
    if (word == "allOf" && out.contains(word)) {
      require(out[word].is_array() && value.is_array(), Fault::Usage, path, "/allOf: must be a list of schemas");
      for (const Json& part : value) out[word].push_back(part);
    } else if (!out.contains(word)) {
      out[word] = value;
    } else if (word != "properties" && word != "additionalProperties" && word != "patternProperties" &&
               word != "required" && word != "prefixItems" && word != "items" && out[word] != value) {
      out[word] = merged_keyword(word, out[word], value, path);
      if (word == "type" && out[word].empty()) return false;
    }
  }
  merge_objects(out, a, b, path);
  if (a.contains("items") && b.contains("items")) out["items"] = both(a["items"], b["items"]);
  merge_items(out, a, b, path);
  if (!(a.value("nullable", Json(false)) == true && b.value("nullable", Json(false)) == true)) out.erase("nullable");
  return out;
}

}  // namespace apus::guide
