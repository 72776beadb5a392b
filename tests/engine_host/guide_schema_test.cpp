// SPDX-License-Identifier: Apache-2.0
// JSON schemas as guides: answers at random parse and are valid, by a validator of this file; generated schemas; what
// is refused, and hostile ones.
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include "base/error.h"
#include "engine/guide.h"
#include "tests/engine_host/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

// ---- a small validator, independent of the guide ----

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool fits_type(const Json& v, const std::string& t) {
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

bool found(const std::string& pattern, const std::string& text) {
  return std::regex_search(text, std::regex(pattern, std::regex::ECMAScript));
}

bool valid(const Json& v, const Json& s, const Json& root);

// The keys, or the items, that a schema and those of its parts that hold have a say on.
std::set<std::string> evaluated(const Json& v, const Json& s, const Json& root) {
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

bool valid(const Json& v, const Json& s, const Json& root) {
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

// ---- schemas at random ----

class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed, "schema") {}
  Json root() {
    Json s = make(0);
    if (!s.is_object()) s = {{"type", "object"}};
    s["$defs"] = {
        {"leaf", make(3)},
        {"tree",
         {{"type", "object"},
          {"properties",
           {{"v", make(3)}, {"sub", {{"type", "array"}, {"maxItems", 2}, {"items", {{"$ref", "#/$defs/tree"}}}}}}},
          {"required", {"v"}}}},
        {"list",
         {{"anyOf",
           {{{"type", "null"}},
            {{"type", "object"}, {"properties", {{"next", {{"$ref", "#/$defs/list"}}}}}, {"required", {"next"}}}}}}}};
    return s;
  }

 private:
  bool one_in(uint64_t n) { return random_.below(n) == 0; }
  Json number(bool whole) {
    const double x = static_cast<double>(static_cast<int64_t>(random_.below(4000)) - 2000);
    return whole ? Json(static_cast<int64_t>(x)) : Json(x / (one_in(2) ? 8 : 10));
  }
  Json range(bool whole) {
    Json s = {{"type", whole ? "integer" : "number"}};
    Json a = number(whole), b = number(whole);
    if (b < a) std::swap(a, b);
    if (a == b) b = b.get<double>() + 1;
    if (one_in(2)) s[one_in(3) ? "exclusiveMinimum" : "minimum"] = a;
    if (one_in(2)) s[one_in(3) && b.get<double>() - a.get<double>() > 2 ? "exclusiveMaximum" : "maximum"] = b;
    return s;
  }
  Json string() {
    Json s = {{"type", "string"}};
    if (one_in(2)) s["minLength"] = random_.below(6);
    if (one_in(2)) s["maxLength"] = 6 + random_.below(30);
    return s;
  }
  Json object(int depth) {
    Json s = {{"type", "object"}, {"properties", Json::object()}};
    static const char* names[] = {"a", "ab", "\xC3\xA9", "long name", "q\"uote", "b"};
    Json required = Json::array();
    for (const char* name : names)
      if (!one_in(3)) {
        s["properties"][name] = make(depth + 1);
        if (one_in(2)) required.push_back(name);
      }
    if (one_in(6)) required.push_back("undeclared");
    if (!required.empty()) s["required"] = required;
    if (one_in(3))
      s["additionalProperties"] = one_in(2) ? Json(true) : make(depth + 1);
    else if (one_in(2) && !(required.size() && required.back() == "undeclared"))
      s["additionalProperties"] = false;
    return s;
  }
  Json array(int depth) {
    Json s = {{"type", "array"}};
    if (one_in(4)) s["prefixItems"] = Json::array({make(depth + 1), make(depth + 1)});
    if (!one_in(3)) s["items"] = make(depth + 1);
    const uint64_t least = random_.below(3);
    if (one_in(2)) s["minItems"] = least;
    if (one_in(2)) s["maxItems"] = least + random_.below(4);
    return s;
  }
  Json multiple() {
    static const Json units[] = {2, 3, 7, 12, 100, 0.5, 0.01, 2.5, 40000};
    Json s = range(one_in(2));
    s["multipleOf"] = units[random_.below(std::size(units))];
    if (s["multipleOf"] == 40000)
      s = {{"type", "integer"}, {"multipleOf", 40000}, {"minimum", -90000}, {"maximum", 1000000}};
    return s;
  }
  Json patterned(int depth) {
    Json s = {{"type", "object"}, {"patternProperties", {{"^a", string()}, {"^n_[0-9]+$", multiple()}}}};
    if (one_in(2)) s["patternProperties"]["^a[a-z]?$"] = {{"type", "string"}, {"maxLength", 8}};
    if (one_in(2)) s["properties"] = {{"ab", Json::object()}, {"c", make(depth + 1)}};
    if (one_in(2)) s["additionalProperties"] = one_in(2) ? Json(false) : make(depth + 1);
    if (one_in(3)) s["propertyNames"] = {{"pattern", "^[a-c_n0-9]*$"}};
    if (one_in(4)) s["propertyNames"] = {{"maxLength", 5}};
    return s;
  }
  Json conditional(int depth) {
    Json s = {{"type", "object"},
              {"properties", {{"kind", {{"enum", {"x", "y", "z"}}}}, {"a", make(depth + 1)}, {"b", string()}}},
              {"required", {"kind"}}};
    s["if"] = {{"properties", {{"kind", one_in(2) ? Json{{"const", "x"}} : Json{{"enum", {"x", "y"}}}}}},
               {"required", {"kind"}}};
    s["then"] = {{"required", {"a"}}};
    if (one_in(2)) s["else"] = {{"properties", {{"b", {{"minLength", 3}}}}}, {"required", {"b"}}};
    if (one_in(3))
      s["allOf"] = {{{"if", {{"required", {"b"}}}}, {"then", {{"properties", {{"kind", {{"const", "z"}}}}}}}}};
    return s;
  }
  Json negated(int depth) {
    switch (random_.below(6)) {
      case 0:
        return {{"not", {{"type", {"string", "object"}}}}};
      case 1:
        return {{"type", "string"}, {"not", {{"enum", {"", "no", "never"}}}}, {"maxLength", 9}};
      case 2:
        return {{"type", "integer"}, {"minimum", -3}, {"maximum", 9}, {"not", {{"enum", {0, 5, -3}}}}};
      case 3:
        return {{"enum", {"a", "b", "c"}}, {"not", {{"const", "b"}}}};
      case 4:
        return {{"type", "object"},
                {"properties", {{"a", make(depth + 1)}, {"b", string()}}},
                {"not", {{"required", {"a", "b"}}}}};
      default:
        return {{"type", "number"}, {"not", {{"minimum", 5}}}};
    }
  }
  Json counted(int depth) {
    Json s = object(depth);
    const auto n = static_cast<int64_t>(s["properties"].size());
    if (one_in(2)) s["minProperties"] = random_.below(static_cast<uint64_t>(n + 1));
    if (one_in(2))
      s["maxProperties"] = std::max<int64_t>(n - 1, static_cast<int64_t>(s.value("required", Json::array()).size()));
    return s;
  }
  Json dependent(int depth) {
    Json s = {{"type", "object"},
              {"properties", {{"a", make(depth + 1)}, {"b", string()}, {"c", {{"type", "boolean"}}}}}};
    s["dependentRequired"] = {{"a", {"b"}}};
    if (one_in(2)) s["dependentRequired"]["c"] = {"a"};
    if (one_in(2)) s["dependentSchemas"] = {{"c", {{"properties", {{"b", {{"minLength", 2}}}}}}}};
    return s;
  }
  Json unevaluated(int depth) {
    if (one_in(4)) {
      Json s = {{"type", "array"}, {"unevaluatedItems", one_in(2) ? Json(false) : string()}, {"maxItems", 3}};
      s["allOf"] = {{{"prefixItems", {range(true)}}}};
      return s;
    }
    Json s = {{"type", "object"}, {"properties", {{"kind", {{"enum", {"x", "y"}}}}}}, {"required", {"kind"}}};
    s["unevaluatedProperties"] = one_in(2) ? Json(false) : string();
    const Json part = {{"properties", {{"p", make(depth + 1)}, {"r", string()}}}};
    switch (random_.below(5)) {
      case 0:
        s["allOf"] = {part, {{"required", {"p"}}}};
        break;
      case 1:
        s["anyOf"] = {part, {{"properties", {{"q", {{"type", "null"}}}}}, {"required", {"q"}}}};
        break;
      case 2:
        s["$ref"] = "#/$defs/tree";
        break;
      case 3:
        s["if"] = {{"properties", {{"kind", {{"const", "x"}}}}}}, s["then"] = part;
        break;
      default:
        s["dependentSchemas"] = {{"kind", part}};
        break;
    }
    if (one_in(4)) s["patternProperties"] = {{"^n_", {{"type", "integer"}}}};
    return s;
  }
  Json lists() {
    if (one_in(4)) {
      Json s = {
          {"type", "array"}, {"uniqueItems", true}, {"items", {{"type", "integer"}, {"minimum", 1}, {"maximum", 49}}}};
      if (one_in(2)) s["minItems"] = 1 + random_.below(6);
      if (one_in(2)) s["maxItems"] = 6;
      return s;
    }
    if (one_in(2)) {
      Json s = {{"type", "array"}, {"uniqueItems", true}, {"items", {{"enum", {"p", "q", 1, nullptr}}}}};
      if (one_in(2)) s["minItems"] = 1 + random_.below(4);
      if (one_in(2)) s["maxItems"] = 4;
      return s;
    }
    Json s = {{"type", "array"}, {"items", {{"type", {"integer", "string"}}}}, {"contains", {{"type", "string"}}}};
    if (one_in(2)) s["minContains"] = random_.below(3);
    if (one_in(2)) s["maxContains"] = 2 + random_.below(3);
    if (one_in(2)) s["maxItems"] = 2 + random_.below(4);
    if (one_in(3)) s["minItems"] = 2;
    return s;
  }
  Json rarer(int depth) {
    switch (random_.below(9)) {
      case 8:
        return unevaluated(depth);
      case 0:
        return multiple();
      case 1:
        return patterned(depth);
      case 2:
        return conditional(depth);
      case 3:
        return negated(depth);
      case 4:
        return counted(depth);
      case 5:
        return dependent(depth);
      case 6:
        return lists();
      default:
        return {{"type", "string"}, {"pattern", "^[a-f]+(-[0-9]{1,3})?$"}, {"minLength", 3}, {"maxLength", 12}};
    }
  }
  Json make(int depth) {
    if (depth < 3 && one_in(3)) return rarer(depth);
    const uint64_t kind = random_.below(depth >= 3 ? 7 : 14);
    switch (kind) {
      case 0:
        return range(true);
      case 1:
        return range(false);
      case 2:
        return string();
      case 3:
        return {{"type", "boolean"}};
      case 4:
        return {{"enum", {"x", "xy", 3, nullptr, {{"k", 1.5}}, "\xE4\xB8\xAD\n"}}};
      case 5:
        return {{"const", one_in(2) ? Json("only") : Json::array({1, "two"})}};
      case 6:
        return {{"type", {"null", "integer", "string"}}, {"maxLength", 4}, {"maximum", 9}};
      case 7:
        return {{"anyOf", {make(depth + 1), make(depth + 1)}}};
      case 8:
        return {{"oneOf", {string(), range(true), {{"type", "null"}}}}};
      case 9:
        return {{"allOf", {object(depth + 1), {{"type", "object"}, {"properties", {{"extra", string()}}}}}}};
      case 10:
        return array(depth);
      case 11:
        return depth > 0 ? Json{{"$ref", one_in(2) ? "#/$defs/tree" : "#/$defs/list"}} : object(depth);
      case 12:
        return {{"type", "object"}, {"nullable", true}, {"description", "free"}};
      default:
        return object(depth);
    }
  }
  Random random_;
};

TEST(GuideSchema, TwoHundredGeneratedSchemas) {
  int refused = 0, followed = 0;
  std::string all;
  for (uint64_t seed = 0; seed < 260; ++seed) {
    const Json schema = Maker(seed).root();
    std::unique_ptr<Constraint> c;
    try {
      c = guide_json_schema(small().words, schema);
    } catch (const Error& e) {
      // An allOf of contradictions, or a minimum without a member: no answer exists.
      EXPECT_NE(std::string(e.what()).find("no answer can satisfy"), std::string::npos) << e.what() << "\n" << schema;
      ++refused;
      continue;
    }
    ++followed;
    all += schema.dump();
    Random random(seed, "answers");
    for (int i = 0; i < 4; ++i) {
      const auto text = ramble(small(), *c, random, 50);
      ASSERT_TRUE(text) << schema;
      const Json answer = parse_json(*text, "answer");
      EXPECT_TRUE(valid(answer, schema, schema)) << *text << "\n" << schema;
    }
  }
  EXPECT_GE(followed, 200) << refused;
  for (const char* word :
       {"unevaluatedProperties", "unevaluatedItems", "maxContains", "uniqueItems", "contains", "not", "if",
        "dependentSchemas", "patternProperties", "multipleOf", "propertyNames", "minProperties"})
    EXPECT_NE(all.find(str('"', word, '"')), std::string::npos) << word;
}

Json schema(const char* text) { return parse_json(text, "schema"); }

struct Case {
  const char* schema;
  std::vector<const char*> yes, no;
};

TEST(GuideSchema, TakesWhatIsValid) {
  const std::vector<Case> cases = {
      {R"({"type":"integer"})", {"0", "-1", "123456789012"}, {"01", "1.0", "-", "+1", "-0"}},
      {R"({"type":"integer","minimum":7,"maximum":1205})",
       {"7", "10", "99", "100", "1205", "1199"},
       {"6", "1206", "0", "9999", "-7"}},
      {R"({"type":"integer","minimum":-105,"exclusiveMaximum":12})",
       {"-105", "-9", "0", "11"},
       {"-106", "12", "-0", "100"}},
      {R"({"type":"integer","exclusiveMinimum":-3,"maximum":-1})", {"-1", "-2"}, {"-3", "0"}},
      {R"({"type":"number","minimum":0.25,"maximum":2.5})",
       {"0.25", "0.3", "1", "2", "2.5", "2.50", "1.999"},
       {"0.2", "2.51", "3", "0", "0.2499", "-1"}},
      {R"({"type":"number","exclusiveMinimum":0})", {"0.001", "5", "123.4"}, {"0", "0.0", "-1"}},
      {R"({"type":"number","minimum":-1.5,"exclusiveMaximum":0.5})",
       {"-1.5", "-1", "0", "0.4", "-0.2"},
       {"0.5", "-1.6", "1"}},
      {R"({"type":"number"})", {"1e5", "-2.5E-3", "0"}, {".5", "1.", "NaN", "1e", "1e999"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {"\"ab\"", "\"a\\u00e9b\"", "\"\xF0\x9F\x98\x80x\"", "\"\\ud83d\\ude00x\""},
       {"\"a\"", "\"abcd\"", "\"\xF0\x9F\x98\x80\""}},
      {R"({"type":"string","pattern":"^a\"?b$"})", {"\"ab\"", "\"a\\\"b\""}, {"\"a\"b\"", "\"xab\""}},
      {R"({"type":"string","pattern":"b"})",
       {"\"b\"", "\"abc\"",
        "\"\xE4\xB8\xAD"
        "b\""},
       {"\"ac\"", "\"\""}},
      {R"({"type":"string","pattern":"^x|y$"})", {"\"xa\"", "\"ay\""}, {"\"ax\"", "\"ya\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-29\"", "\"1999-12-31\""},
       {"\"2023-02-29\"", "\"2024-13-01\"", "\"2024-04-31\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-01-02T03:04:05Z\"", "\"2024-01-02T23:59:59.5+01:00\""},
       {"\"2024-01-02\"", "\"2024-01-02T24:00:00Z\""}},
      {R"({"type":"string","format":"uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
      {R"({"type":"string","format":"ipv4"})", {"\"255.0.10.1\""}, {"\"256.1.1.1\"", "\"01.1.1.1\""}},
      {R"({"type":"string","format":"ipv6"})",
       {"\"::1\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::1:2\""},
       {"\"1:2\"", "\"12345::\""}},
      {R"({"type":"string","format":"email"})", {"\"a.b@c.de\""}, {"\"a@\"", "\"a b@c.de\""}},
      {R"({"enum":["a","b",1,null]})", {"\"a\"", "1", "null"}, {"\"c\"", "2"}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
       {"[1]", "[1,2]", "[1, 2, 3]", "[\n  1\n]"},
       {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"boolean"},"maxItems":3})",
       {"[1,\"a\"]", "[1,\"a\",true]"},
       {"[1]", "[1,\"a\",1]", "[1,\"a\",true,true]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"boolean"},"c":{"type":"null"}},"required":["b"]})",
       {R"({"b":true})", R"({"a":1,"b":true})", R"({"a": 1, "b": true, "c": null})", "{\n    \"b\": false\n}"},
       {R"({})", R"({"a":1})", R"({"b":true,})", R"({,"b":true})", R"({"b":true,"d":1})", R"({"b":true,"a":1})"}},
      {R"({"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":{"type":"string"}})",
       {R"({})", R"({"ab":1})", R"({"a":"x"})", R"({"abc":"x"})", R"({"ab":1,"":"x","b":"y"})"},
       {R"({"ab":"x"})", R"({"a":1})", R"({"\u0061b":"x"})"}},
      {R"({"type":"object","required":["k"],"additionalProperties":{"type":"integer"}})",
       {R"({"k":1})", R"({"k":1,"x":2})"},
       {R"({})", R"({"x":2})"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", {"1", "null"}, {"true"}},
      {R"({"type":"integer","nullable":true})", {"1", "null"}, {"true"}},
      {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"x":{"type":"integer"}},"required":["t","x"]},{"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]})",
       {R"({"t":"a","x":1})", R"({"t":"b"})"},
       {R"({"t":"a"})", R"({"t":"c"})"}},
      {R"({"allOf":[{"type":"integer","minimum":3},{"maximum":5}]})", {"3", "5"}, {"2", "6"}},
      {R"({"allOf":[{"$ref":"#/$defs/p"}],"description":"d","$defs":{"p":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}})",
       {R"({"n":1})"},
       {"{}"}},
      {R"({"$ref":"#/$defs/p","required":["m"],"$defs":{"p":{"type":"object","properties":{"n":{"type":"integer"},"m":{"type":"null"}}}}})",
       {R"({"m":null})"},
       {"{}"}},
      {R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}}})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1})", R"({"v":1,"next":{}})"}},
      {R"({"properties":{"a":{"type":"integer"}}})", {R"({"a":1})", "{}"}, {"1"}},
      {R"({"type":"integer","multipleOf":7})", {"0", "7", "-14", "700000000007"}, {"1", "-0", "07", "7.0", "-7.5"}},
      {R"({"type":"integer","multipleOf":12,"minimum":25,"maximum":123456})",
       {"36", "120", "123456"},
       {"24", "37", "123468", "0"}},
      {R"({"type":"integer","multipleOf":250000,"minimum":-500000,"maximum":1000000})",
       {"-500000", "0", "750000"},
       {"250001", "1250000"}},
      {R"({"type":"number","multipleOf":0.25,"minimum":0})",
       {"0.00", "0.25", "10.50", "3.75"},
       {"0.3", "0.10", "-0.25", "1.251"}},
      {R"({"type":"number","multipleOf":5,"exclusiveMaximum":20})", {"15", "-5", "0"}, {"20", "4"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
       {R"(["b"])", R"(["c","a"])", R"(["b", "a", "c"])"},
       {"[]", R"(["a","a"])", R"(["a","b","a"])", R"(["d"])"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"maxItems":3})",
       {"[5]", "[1,2,9]", "[9,1]"},
       {"[]", "[1]", "[1,2,3]", "[1,2,3,9]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"minContains":2})",
       {"[5,6]", "[1,9,2,9,3,4,4]"},
       {"[5]", "[5,1,1,1,1]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"minimum":5},"maxContains":1})",
       {"[5]", "[1,9,2,3]"},
       {"[]", "[1]", "[5,6]", "[9,1,9]"}},
      {R"({"type":"array","items":{"type":"integer"},"contains":{"const":0},"minContains":0,"maxContains":2,"maxItems":4})",
       {"[]", "[0,0]", "[1,0,2,0]", "[1,2,3,4]"},
       {"[0,0,0]", "[0,1,0,0]"}},
      {R"({"allOf":[{"type":"array","items":{"type":"integer"},"contains":{"const":0}},{"minContains":0}]})",
       {"[0]", "[1,0]"},
       {"[]", "[1]"}},
      {R"({"type":"array","uniqueItems":true,"items":{"enum":["a","b","c","d","e","f","g","h","i"]},"minItems":1,"maxItems":3})",
       {R"(["a"])", R"(["b","d","i"])"},
       {"[]", R"(["a","a"])", R"(["a","b","c","d"])"}},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":49},"minItems":6,"maxItems":6})",
       {"[3,11,19,24,30,49]"},
       {"[3,11,19,24,30]", "[3,11,11,24,30,49]", "[3,11,19,24,30,50]"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"allOf":[{"properties":{"b":{"type":"null"}}}],"unevaluatedProperties":false})",
       {"{}", R"({"a":null,"b":null})"},
       {R"({"c":1})", R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"$ref":"#/$defs/b","unevaluatedProperties":{"type":"integer"},"$defs":{"b":{"properties":{"b":{"type":"null"}}}}})",
       {R"({"b":null,"a":null,"c":1})"},
       {R"({"c":"x"})", R"({"b":1})"}},
      {R"({"type":"object","allOf":[{"properties":{"a":{"type":"null"}},"unevaluatedProperties":false},{"properties":{"b":{"type":"null"}}}]})",
       {"{}", R"({"a":null})"},
       {R"({"b":null})", R"({"a":null,"b":null})"}},
      {R"({"type":"object","allOf":[{"additionalProperties":{"type":"integer"}}],"unevaluatedProperties":false})",
       {"{}", R"({"a":1})"},
       {R"({"a":"x"})"}},
      {R"({"type":"object","properties":{"k":{"enum":["x","y"]}},"required":["k"],"if":{"properties":{"k":{"const":"x"}}},"then":{"properties":{"p":{"type":"null"}}},"unevaluatedProperties":false})",
       {R"({"k":"x","p":null})", R"({"k":"y"})"},
       {R"({"k":"y","p":null})", R"({"k":"x","q":1})"}},
      {R"({"type":"array","allOf":[{"prefixItems":[{"type":"integer"}]}],"unevaluatedItems":{"type":"string"},"maxItems":3})",
       {"[1]", R"([1,"a"])"},
       {"[1,2]", R"(["a"])"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"unevaluatedItems":false})", {"[1]"}, {"[1,2]"}},
      {R"({"type":"object","patternProperties":{"^n_":{"type":"integer"},"s$":{"type":"string"}}})",
       {R"({})", R"({"n_a":1})", R"({"s":"x","n_":2})"},
       {R"({"n_s":1})", R"({"n_s":"x"})", R"({"x":1})", R"({"s":1})"}},
      {R"({"type":"object","properties":{"n_a":{"maximum":5},"b":{"type":"null"}},"patternProperties":{"^n_":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
       {R"({"n_a":5,"b":null,"n_b":7,"x":true})"},
       {R"({"n_a":6})", R"({"n_b":true})", R"({"x":1})", R"({"n_a":"x"})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":3},"additionalProperties":{"type":"integer"}})",
       {R"({"ab":1})", R"({"abc":1,"x":2})"},
       {R"({"abcd":1})", R"({"A":1})", R"({"":1})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"minProperties":2})",
       {R"({"a":null,"c":null})", R"({"a":null,"b":null,"c":null})"},
       {R"({})", R"({"b":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"maxProperties":1,"required":["b"]})",
       {R"({"b":null})"},
       {R"({"a":null})", R"({"a":null,"b":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"dependentRequired":{"a":["c"]}})",
       {R"({})", R"({"b":null})", R"({"a":null,"c":null})"},
       {R"({"a":null})", R"({"a":null,"b":null})"}},
      {R"({"type":"object","properties":{"t":{"enum":["a","b"]},"x":{"type":"integer"}},"required":["t"],"if":{"properties":{"t":{"const":"a"}}},"then":{"required":["x"]},"else":{"properties":{"x":false}}})",
       {R"({"t":"a","x":1})", R"({"t":"b"})"},
       {R"({"t":"a"})", R"({"t":"b","x":1})"}},
      {R"({"type":"string","not":{"enum":["no","n"]},"maxLength":3})",
       {"\"\"", "\"not\"", "\"on\""},
       {"\"no\"", "\"n\"", "\"nope\""}},
      {R"({"not":{"type":["string","number"]}})", {"null", "[1]", "true"}, {"\"x\"", "1"}},
      {R"({"type":"integer","not":{"const":5},"minimum":4,"maximum":6})", {"4", "6"}, {"5", "3", "7"}},
      {R"({"type":"string","pattern":"^a*$","maxLength":3})", {"\"\"", "\"aaa\""}, {"\"aaaa\"", "\"b\""}},
      {R"({"type":"string","pattern":"1$","format":"date"})", {"\"2024-01-01\""}, {"\"2024-01-02\""}},
      {"true", {"1", "[{}]", "\"x\""}, {"", "x"}},
      {"{}", {"1", "[{}]", "\"x\""}, {"", "x"}},
  };
  for (const auto& [text, yes, no] : cases) {
    std::unique_ptr<Constraint> c;
    ASSERT_NO_THROW(c = guide_json_schema(small().words, schema(text))) << text;
    for (const char* answer : yes) EXPECT_TRUE(takes(small(), *c, answer)) << text << " : " << answer;
    for (const char* answer : no) EXPECT_FALSE(takes(small(), *c, answer)) << text << " : " << answer;
  }
}

// Every number around the bounds, against plain comparison.
TEST(GuideSchema, RangesAreExact) {
  Random random(21, "ranges");
  for (int run = 0; run < 60; ++run) {
    const auto a = static_cast<int64_t>(random.below(260)) - 130, b = a + static_cast<int64_t>(random.below(140));
    const auto whole = guide_json_schema(small().words, {{"type", "integer"}, {"minimum", a}, {"maximum", b}});
    for (int64_t n = a - 12; n <= b + 12; ++n)
      ASSERT_EQ(takes(small(), *whole, std::to_string(n)), n >= a && n <= b) << n << " in " << a << ".." << b;
    const double low = static_cast<double>(a) / 40, high = static_cast<double>(b + 1) / 40;
    const bool open = run % 2;
    const auto real = guide_json_schema(small().words, {{"type", "number"},
                                                        {open ? "exclusiveMinimum" : "minimum", low},
                                                        {open ? "exclusiveMaximum" : "maximum", high}});
    for (int i = 0; i < 60; ++i) {
      const double x = low - 0.2 + static_cast<double>(random.below(1000)) / 1000 * (high - low + 0.4);
      char text[32];
      std::snprintf(text, sizeof text, "%.4f", x);
      const double y = std::stod(text);
      if (std::string(text).starts_with("-0.0000")) continue;
      ASSERT_EQ(takes(small(), *real, text), open ? y > low && y < high : y >= low && y <= high)
          << text << " in " << low << ".." << high << " open " << open;
    }
  }
}

std::string refusal(const Json& s) {
  try {
    guide_json_schema(small().words, s);
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Usage);
    return e.what();
  }
  return "(accepted)";
}

TEST(GuideSchema, RefusesWithThePath) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"object","properties":{"a":{"type":"string","not":{"pattern":"x"}}}})", "#/properties/a/not/pattern"},
      {R"({"not":{}})", "no answer"},
      {R"({"not":{"type":"integer"}})", "#/not/type"},
      {R"({"type":"number","not":{"enum":[1]}})", "#/not"},
      {R"x({"type":"object","patternProperties":{"(?=x)":{}}})x", "#/patternProperties"},
      {R"({"type":"object","patternProperties":3})", "#/patternProperties"},
      {R"({"type":"object","propertyNames":{"not":{"const":"x"}}})", "#/propertyNames/not"},
      {R"({"type":"array","items":{"type":"array","uniqueItems":true}})", "#/items/uniqueItems"},
      {R"({"type":"array","items":{"type":"string"},"contains":{"pattern":"x"},"maxContains":3})",
       "#/maxContains/pattern"},
      {R"({"type":"array","contains":{},"maxContains":3000})", "#/contains"},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":1000}})", "#/uniqueItems"},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":200},"minItems":150})",
       "#/uniqueItems"},
      {R"({"type":"integer","multipleOf":3000})", "#/multipleOf"},
      {R"({"type":"integer","multipleOf":0})", "#/multipleOf"},
      {R"({"if":{"items":{"type":"integer"}},"then":{}})", "#/if/items"},
      {R"({"type":"object","not":{"minProperties":2},"unevaluatedProperties":false})", "#/not/minProperties"},
      {R"({"type":"object","if":{"properties":{"k":{"const":1}}},"then":{"required":["k"]},"unevaluatedProperties":false})",
       "#/if/k"},
      {R"({"type":"object","required":["a"],"allOf":[{"anyOf":[{"required":["a"]},{"required":["b"]}],"unevaluatedProperties":false}]})",
       "/unevaluatedProperties"},
      {R"({"type":"array","contains":{"const":1},"unevaluatedItems":false})", "#/unevaluatedItems"},
      {R"({"$dynamicRef":"#x"})", "#/$dynamicRef"},
      {R"({"type":"strin"})", "#/type"},
      {R"({"type":"string","format":"colour"})", "#/format"},
      {R"x({"type":"string","pattern":"(?=x)"})x", "#/pattern"},
      {R"({"type":"string","pattern":"a*","maxLength":30000})", "more than"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref"},
      {R"({"$ref":"http://example.com/schema"})", "#/$ref"},
      {R"({"$ref":"#"})", "circle"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "#/oneOf"},
      {R"({"enum":[]})", "no answer"},
      {R"(false)", "no answer"},
      {R"({"type":"string","minLength":5,"maxLength":2})", "no answer"},
      {R"({"type":"integer","minimum":5,"maximum":2})", "no answer"},
      {R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}}})",
       "no answer"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "no answer"},
      {R"({"type":"object","minProperties":3})", "#/minProperties"},
      {R"({"type":"array","minItems":-1})", "#/minItems"},
      {R"([1])", "must be an object"},
  };
  for (const auto& [text, why] : cases)
    EXPECT_NE(refusal(schema(text)).find(why), std::string::npos) << text << " -> " << refusal(schema(text));
}

TEST(GuideSchema, HostileSchemasEnd) {
  const auto begin = std::chrono::steady_clock::now();
  Json deep = {{"type", "integer"}};
  for (int i = 0; i < 240; ++i) deep = {{"type", "array"}, {"items", deep}};
  EXPECT_NE(refusal(deep).find("too large"), std::string::npos);
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 3000; ++i) wide["properties"]["key" + std::to_string(i)] = {{"type", "string"}};
  const std::string many = refusal(wide);
  EXPECT_TRUE(many == "(accepted)" || many.find("ambiguous") != std::string::npos) << many;
  // Each level refers twice to the next: exponential if it were written out.
  Json doubling = {{"$ref", "#/$defs/0"}, {"$defs", Json::object()}};
  for (int i = 0; i < 60; ++i) {
    const Json next = {{"$ref", "#/$defs/" + std::to_string(i + 1)}};
    doubling["$defs"][std::to_string(i)] = {{"type", "array"}, {"prefixItems", {next, next}}};
  }
  doubling["$defs"]["60"] = {{"type", "null"}};
  const std::string twice = refusal(doubling);
  EXPECT_TRUE(twice == "(accepted)" || twice.find("too large") != std::string::npos) << twice;
  Json crossing = {{"allOf", Json::array()}};
  for (int i = 0; i < 12; ++i)
    crossing["allOf"].push_back({{"anyOf", {{{"minLength", i}}, {{"maxLength", 100 - i}}, {{"minLength", i + 1}}}}});
  EXPECT_NE(refusal(crossing).find("combinations"), std::string::npos);
  EXPECT_NE(refusal({{"type", "string"}, {"pattern", "((a{1,900}){1,900}){1,900}x?"}}), "");
  Json circle = {{"$ref", "#/$defs/a"}, {"$defs", {{"a", {{"allOf", {{{"$ref", "#/$defs/a"}}, {{"minLength", 1}}}}}}}}};
  EXPECT_NE(refusal(circle), "(accepted)");
  // References that lead to the next level twice: all of them, their negation, any of them with something of their own.
  const auto chain = [](const std::function<Json(const std::string&, int)>& level) {
    Json s = {{"$ref", "#/$defs/0"}, {"$defs", {{"60", {{"type", "object"}}}}}};
    for (int i = 0; i < 60; ++i) s["$defs"][std::to_string(i)] = level("#/$defs/" + std::to_string(i + 1), i);
    return s;
  };
  const auto key = [](const std::string& name) { return Json{{"properties", {{name, Json::object()}}}}; };
  const Json all = chain([&](const std::string& next, int i) {
    return Json{{"allOf", {{{"$ref", next}}, {{"$ref", next}}, key(str("k", i))}}};
  });
  const Json all_named = chain([&](const std::string& next, int i) {
    return Json{{"allOf", {{{"$ref", next}, {"title", str("a", i)}}, {{"$ref", next}, {"title", str("b", i)}}}}};
  });
  const Json any = chain([&](const std::string& next, int i) {
    Json one = key(str("a", i)), two = key(str("b", i));
    one["$ref"] = two["$ref"] = next;
    return Json{{"anyOf", {one, two}}};
  });
  for (const Json* s : {&all, &all_named, &any}) EXPECT_NE(refusal(*s), "");
  EXPECT_NE(refusal({{"not", all}, {"$defs", all["$defs"]}}), "");
  EXPECT_NE(refusal({{"unevaluatedProperties", false}, {"allOf", {{{"$ref", "#/$defs/0"}}}}, {"$defs", all["$defs"]}}),
            "");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(GuideSchema, RecursionEndsWithinTheDepthThatReadersTake) {
  const auto c = guide_json_schema(
      small().words, schema(R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}}})"));
  const int32_t open = small().tokenizer->encode("[")[0];
  int depth = 0;
  while (depth < 1000 && allows(*c, open)) c->accept(open), ++depth;
  EXPECT_GT(depth, 40);
  EXPECT_LT(depth, 256);
  EXPECT_TRUE(takes(small(), *c, std::string(static_cast<size_t>(depth), ']')));
}

}  // namespace
}  // namespace apus
