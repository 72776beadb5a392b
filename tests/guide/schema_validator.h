// SPDX-License-Identifier: Apache-2.0
// A small validator of JSON schemas that knows nothing of the guide.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "base/json.h"

namespace apus::testing_guide {

inline size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

inline bool fits_type(const Json& v, const std::string& t) {
  if (t == "integer")
    return v.is_number_integer() || (v.is_number_float() && v.get<double>() == std::floor(v.get<double>()));
  if (t == "number") return v.is_number();
  const std::map<std::string, Json::value_t> kinds = {{"object", Json::value_t::object},
                                                      {"array", Json::value_t::array},
                                                      {"string", Json::value_t::string},
                                                      {"boolean", Json::value_t::boolean},
                                                      {"null", Json::value_t::null}};
  return v.type() == kinds.at(t);
}

inline bool found(const std::string& pattern, const std::string& text) {
  return std::regex_search(text, std::regex(pattern, std::regex::ECMAScript));
}

inline bool valid(const Json& v, const Json& s, const Json& root);

// The keys, or the items, that a schema and those of its parts that hold have a say on.
inline std::set<std::string> evaluated(const Json& v, const Json& s, const Json& root) {
  std::set<std::string> all;
  if (!s.is_object()) return all;
  const auto add = [&](const Json& part) {
    if (valid(v, part, root)) all.merge(evaluated(v, part, root));
  };
  if (s.contains("$ref")) add(root.at(Json::json_pointer(s["$ref"].get<std::string>().substr(1))));
  for (const char* word : {"allOf", "anyOf", "oneOf"})
    for (const Json& part : s.value(word, Json::array())) add(part);
  if (s.contains("if")) {
    const bool holds = valid(v, s["if"], root);
    if (holds) add(s["if"]);
    if (s.contains(holds ? "then" : "else")) add(s[holds ? "then" : "else"]);
  }
  const Json then = s.value("dependentSchemas", Json::object());
  for (const auto& [key, part] : then.items())
    if (v.is_object() && v.contains(key)) add(part);
  if (v.is_object()) {
    for (const auto& [key, member] : v.items()) {
      bool named = s.contains("additionalProperties") || s.contains("unevaluatedProperties");
      named |= s.value("properties", Json::object()).contains(key);
      const Json patterns = s.value("patternProperties", Json::object());
      for (const auto& [pattern, schema] : patterns.items()) named |= found(pattern, key);
      if (named) all.insert(key);
    }
  }
  for (size_t i = 0; v.is_array() && i < v.size(); ++i)
    if (i < s.value("prefixItems", Json::array()).size() || s.contains("items") || s.contains("unevaluatedItems"))
      all.insert(std::to_string(i));
  return all;
}

inline bool valid(const Json& v, const Json& s, const Json& root) {
  if (s.is_boolean()) return s.get<bool>();
  const auto has = [&](const char* word) { return s.contains(word); };
  const auto count = [&](const Json& list) {
    return std::count_if(list.begin(), list.end(), [&](const Json& b) { return valid(v, b, root); });
  };
  if (has("$ref") && !valid(v, root.at(Json::json_pointer(s["$ref"].get<std::string>().substr(1))), root)) return false;
  if (has("allOf") && count(s["allOf"]) != static_cast<long>(s["allOf"].size())) return false;
  if (has("anyOf") && count(s["anyOf"]) == 0) return false;
  if (has("oneOf") && count(s["oneOf"]) != 1) return false;
  if (has("const") && v != s["const"]) return false;
  if (has("enum") && std::find(s["enum"].begin(), s["enum"].end(), v) == s["enum"].end()) return false;
  if (has("type") && !(s.value("nullable", false) && v.is_null())) {
    const Json types = s["type"].is_array() ? s["type"] : Json::array({s["type"]});
    if (std::none_of(types.begin(), types.end(), [&](const Json& t) { return fits_type(v, t); })) return false;
  }
  if (has("not") && valid(v, s["not"], root)) return false;
  if (has("if")) {
    const char* then = valid(v, s["if"], root) ? "then" : "else";
    if (has(then) && !valid(v, s[then], root)) return false;
  }
  if (v.is_string()) {
    const size_t n = characters(v);
    if (n < s.value("minLength", 0u) || n > s.value("maxLength", 1000000u)) return false;
    if (has("pattern") && !found(s["pattern"], v)) return false;
  }
  if (v.is_number()) {
    const double x = v;
    if (has("multipleOf")) {
      const double parts = x / s["multipleOf"].get<double>();
      if (std::fabs(parts - std::nearbyint(parts)) > 1e-9 * std::max(1.0, std::fabs(parts))) return false;
    }
    if ((has("minimum") && x < s["minimum"]) || (has("maximum") && x > s["maximum"])) return false;
    if ((has("exclusiveMinimum") && x <= s["exclusiveMinimum"]) ||
        (has("exclusiveMaximum") && x >= s["exclusiveMaximum"]))
      return false;
  }
  if (v.is_array()) {
    if (v.size() < s.value("minItems", 0u) || v.size() > s.value("maxItems", 1000000u)) return false;
    if (s.value("uniqueItems", false))
      for (size_t i = 0; i < v.size(); ++i)
        if (std::count(v.begin(), v.end(), v[i]) > 1) return false;
    if (has("contains")) {
      const auto hits = std::count_if(v.begin(), v.end(), [&](const Json& x) { return valid(x, s["contains"], root); });
      if (hits < s.value("minContains", 1) || hits > s.value("maxContains", 1000000)) return false;
    }
    const Json first = s.value("prefixItems", Json::array());
    for (size_t i = 0; i < v.size(); ++i)
      if (!valid(v[i], i < first.size() ? first[i] : s.value("items", Json(true)), root)) return false;
  }
  for (const char* word : {"unevaluatedProperties", "unevaluatedItems"}) {
    if (!has(word) || !(word[11] == 'P' ? v.is_object() : v.is_array())) continue;
    Json rest = s;
    rest.erase(word);
    const auto seen = evaluated(v, rest, root);
    for (const auto& [key, member] : v.items())
      if (!seen.count(key) && !valid(member, s[word], root)) return false;
  }
  if (v.is_object()) {
    for (const Json& r : s.value("required", Json::array()))
      if (!v.contains(r.get<std::string>())) return false;
    if (v.size() < s.value("minProperties", 0u) || v.size() > s.value("maxProperties", 1000000u)) return false;
    const Json needed = s.value("dependentRequired", Json::object()),
               then = s.value("dependentSchemas", Json::object());
    for (const auto& [key, names] : needed.items())
      for (const Json& name : names)
        if (v.contains(key) && !v.contains(name.get<std::string>())) return false;
    for (const auto& [key, schema] : then.items())
      if (v.contains(key) && !valid(v, schema, root)) return false;
    const Json properties = s.value("properties", Json::object()),
               patterns = s.value("patternProperties", Json::object());
    for (const auto& [key, member] : v.items()) {
      if (has("propertyNames") && !valid(key, s["propertyNames"], root)) return false;
      bool named = properties.contains(key);
      if (named && !valid(member, properties[key], root)) return false;
      for (const auto& [pattern, schema] : patterns.items()) {
        if (!found(pattern, key)) continue;
        named = true;
        if (!valid(member, schema, root)) return false;
      }
      if (!named && !valid(member, s.value("additionalProperties", Json(true)), root)) return false;
    }
  }
  return true;
}

}  // namespace apus::testing_guide
