// SPDX-License-Identifier: Apache-2.0
// Whether a value that a schema lists fits what else the schema says.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "guide/json_schema.h"
#include "guide/texts.h"

namespace apus::guide {

namespace {

constexpr int kDeepestCheck = 100, kMostChecks = 100'000;

bool is_multiple(double x, double unit) {
  const double parts = x / unit;
  return std::isfinite(parts) && std::fabs(parts - std::nearbyint(parts)) <= 1e-9 * std::max(1.0, std::fabs(parts));
}

class ValueCheck {
 public:
  using Resolve = std::function<const Json&(const Json&)>;
  ValueCheck(const Resolve& resolve, const std::string& path) : resolve_(resolve), path_(path) {}

  bool fits(const Json& value, const Json& schema, int depth = 0) {
    require(depth < kDeepestCheck && ++checks_ < kMostChecks, Fault::Usage, path_,
            ": beside enum or const the schema is too large, or leads in a circle");
    if (schema.is_boolean()) return schema.get<bool>();
    require(schema.is_object(), Fault::Usage, path_, ": a schema must be an object, true or false");
    for (const auto& [word, said] : schema.items())
      if (!keyword(value, schema, word, said, depth + 1)) return false;
    return true;
  }

 private:
  bool keyword(const Json& v, const Json& s, const std::string& word, const Json& said, int depth) {
    if (word == "$ref") return fits(v, resolve_(Json{{"$ref", said}}), depth);
    if (word == "type") return fits_type(v, s, said);
    if (word == "const") return v == said || is_nullable(v, s);
    if (word == "enum") return contains_value(said, v) || is_nullable(v, s);
    if (word == "not") return !fits(v, said, depth);
    if (word == "allOf" || word == "anyOf" || word == "oneOf") {
      const auto n = std::count_if(said.begin(), said.end(), [&](const Json& part) { return fits(v, part, depth); });
      return word == "allOf" ? n == static_cast<long>(said.size()) : word == "anyOf" ? n > 0 : n == 1;
    }
    if (word == "if") {
      const auto then = s.find(fits(v, said, depth) ? "then" : "else");
      return then == s.end() || fits(v, *then, depth);
    }
    if (word == "format" || is_annotation(word)) return true;
    static const std::set<std::string> read_with_others = {"then",     "else",        "$defs",      "definitions",
                                                           "nullable", "minContains", "maxContains"};
    if (read_with_others.count(word)) return true;
    return v.is_number()   ? number(v, s, word, said)
           : v.is_string() ? text(v, word, said)
           : v.is_array()  ? array(v, s, word, said, depth)
           : v.is_object() ? object(v, s, word, said, depth)
                           : known(word);
  }

  static bool is_nullable(const Json& v, const Json& s) { return v.is_null() && s.value("nullable", Json()) == true; }
  static bool fits_type(const Json& v, const Json& s, const Json& said) {
    if (is_nullable(v, s)) return true;
    const Json types = said.is_array() ? said : Json::array({said});
    return std::any_of(types.begin(), types.end(),
                       [&](const Json& t) { return t.is_string() && matches_type(v, t.get<std::string>()); });
  }

  bool known(const std::string& word) const {
    static const std::set<std::string> words = {"minimum",
                                                "maximum",
                                                "exclusiveMinimum",
                                                "exclusiveMaximum",
                                                "multipleOf",
                                                "minLength",
                                                "maxLength",
                                                "pattern",
                                                "items",
                                                "prefixItems",
                                                "minItems",
                                                "maxItems",
                                                "uniqueItems",
                                                "contains",
                                                "properties",
                                                "required",
                                                "additionalProperties",
                                                "patternProperties",
                                                "propertyNames",
                                                "minProperties",
                                                "maxProperties",
                                                "dependentRequired",
                                                "dependentSchemas"};
    require(words.count(word) > 0, Fault::Usage, below(path_, word),
            ": beside enum or const this keyword is not supported; leave out the values it forbids");
    return true;
  }

  bool number(const Json& v, const Json& s, const std::string& word, const Json& said) const {
    if (!said.is_number()) return known(word);
    const auto flag = [&](const char* w) { return s.value(w, Json()) == true; };  // drafts before 6
    if (word == "minimum") return flag("exclusiveMinimum") ? v > said : v >= said;
    if (word == "maximum") return flag("exclusiveMaximum") ? v < said : v <= said;
    if (word == "exclusiveMinimum") return v > said;
    if (word == "exclusiveMaximum") return v < said;
    if (word == "multipleOf") return is_multiple(v.get<double>(), said.get<double>());
    return known(word);
  }

  bool text(const Json& v, const std::string& word, const Json& said) const {
    const auto& t = v.get_ref<const std::string&>();
    const auto length = std::count_if(t.begin(), t.end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (word == "minLength") return Json(length) >= said;
    if (word == "maxLength") return Json(length) <= said;
    if (word == "pattern" && said.is_string()) return matches(said.get<std::string>(), t);
    return known(word);
  }

  bool array(const Json& v, const Json& s, const std::string& word, const Json& said, int depth) {
    if (word == "minItems") return Json(v.size()) >= said;
    if (word == "maxItems") return Json(v.size()) <= said;
    if (word == "uniqueItems" && said == true) {
      for (size_t i = 0; i < v.size(); ++i)
        if (std::find(v.begin() + static_cast<std::ptrdiff_t>(i) + 1, v.end(), v[i]) != v.end()) return false;
      return true;
    }
    if (word == "prefixItems" || (word == "items" && said.is_array())) {
      for (size_t i = 0; i < std::min(v.size(), said.size()); ++i)
        if (!fits(v[i], said[i], depth)) return false;
      return true;
    }
    if (word == "items") {
      for (size_t i = s.value("prefixItems", Json::array()).size(); i < v.size(); ++i)
        if (!fits(v[i], said, depth)) return false;
      return true;
    }
    if (word == "contains") {
      const auto n = std::count_if(v.begin(), v.end(), [&](const Json& item) { return fits(item, said, depth); });
      return Json(n) >= s.value("minContains", Json(1)) && (!s.contains("maxContains") || Json(n) <= s["maxContains"]);
    }
    return known(word);
  }

  bool object(const Json& v, const Json& s, const std::string& word, const Json& said, int depth) {
    if (word == "minProperties") return Json(v.size()) >= said;
    if (word == "maxProperties") return Json(v.size()) <= said;
    if (word == "required" && said.is_array())
      return std::all_of(said.begin(), said.end(),
                         [&](const Json& key) { return key.is_string() && v.contains(key.get<std::string>()); });
    for (const auto& [key, member] : v.items()) {
      if (word == "properties" && said.contains(key) && !fits(member, said[key], depth)) return false;
      if (word == "propertyNames" && !fits(Json(key), said, depth)) return false;
      if (word == "dependentSchemas" && said.contains(key) && !fits(v, said[key], depth)) return false;
      if (word == "dependentRequired" && said.contains(key) && !fits(v, {{"required", said[key]}}, depth)) return false;
      if (word == "patternProperties")
        for (const auto& [pattern, schema] : said.items())
          if (matches(pattern, key) && !fits(member, schema, depth)) return false;
      if (word == "additionalProperties" && !is_named(s, key) && !fits(member, said, depth)) return false;
    }
    return known(word);
  }
  bool is_named(const Json& s, const std::string& key) const {
    if (s.value("properties", Json::object()).contains(key)) return true;
    const Json patterns = s.value("patternProperties", Json::object());
    return std::any_of(patterns.items().begin(), patterns.items().end(),
                       [&](const auto& entry) { return matches(entry.key(), key); });
  }

  bool matches(const std::string& pattern, const std::string& text) const {
    auto at = patterns_.find(pattern);
    if (at == patterns_.end()) {
      at = patterns_.emplace(pattern, Texts(path_)).first;
      at->second.add(parse_search(pattern, below(path_, "pattern")));
    }
    return at->second.matches(text)[0];
  }

  const Resolve& resolve_;
  const std::string path_;
  int checks_ = 0;                                 // of all values
  mutable std::map<std::string, Texts> patterns_;  // a value costs no reading of them
};

}  // namespace

Json SchemaGrammar::fitting(const Json& values, const Json& schema, const std::string& path) const {
  const ValueCheck::Resolve resolve = [&](const Json& ref) -> const Json& { return resolved(ref, path); };
  ValueCheck check(resolve, path);
  Json out = Json::array();
  for (const Json& value : values)
    if (check.fits(value, schema)) out.push_back(value);
  return out;
}

}  // namespace apus::guide
