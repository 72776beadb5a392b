// SPDX-License-Identifier: Apache-2.0
// Schemas at random as guides: answers at random parse and are valid.
#include "base/error.h"
#include "guide/guide.h"
#include "tests/guide/guide_tools.h"
#include "tests/guide/schema_validator.h"

namespace apus {
namespace {

using namespace testing_guide;

class RandomSchema {
 public:
  explicit RandomSchema(uint64_t seed) : random_(seed, "schema") {}
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
    const Json schema = RandomSchema(seed).root();
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

}  // namespace
}  // namespace apus
