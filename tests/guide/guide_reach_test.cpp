// SPDX-License-Identifier: Apache-2.0
// Schemas as clients write them: references of all kinds, overlapping branches, formats, look-aheads; and grammars.
#include <chrono>

#include "base/error.h"
#include "guide/guide.h"
#include "tests/guide/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

struct Wanted {
  const char* schema;
  std::vector<const char*> yes, no;
};

void check(const std::vector<Wanted>& all) {
  for (const auto& [text, yes, no] : all) {
    std::unique_ptr<Constraint> c;
    ASSERT_NO_THROW(c = guide_json_schema(small().words, parse_json(text, "schema"))) << text;
    for (const char* answer : yes) EXPECT_TRUE(takes(small(), *c, answer)) << text << " : " << answer;
    for (const char* answer : no) EXPECT_FALSE(takes(small(), *c, answer)) << text << " : " << answer;
  }
}

TEST(GuideReach, References) {
  check({
      {R"({"$ref":"#small","$defs":{"a":{"$anchor":"small","type":"integer","maximum":3}}})", {"3"}, {"4"}},
      {R"({"$id":"http://x.org/root.json","$ref":"item","$defs":{"a":{"$id":"item","type":"null"}}})", {"null"}, {"1"}},
      {R"({"$id":"http://x.org/a/b.json","$ref":"../c/./d.json#/$defs/n","$defs":{"a":{"$id":"/c/d.json","$defs":{"n":{"type":"boolean"}}}}})",
       {"true"},
       {"1"}},
      {R"({"$ref":"#/$defs/per%25cent%20key","$defs":{"per%cent key":{"type":"integer"}}})", {"1"}, {"null"}},
      {R"({"$ref":"#/$defs/a~1b","$defs":{"a/b":{"type":"integer"}}})", {"1"}, {"null"}},
      {R"({"$ref":"urn:x:y#here","$defs":{"a":{"$id":"urn:x:y","$anchor":"here","type":"null"}}})", {"null"}, {"1"}},
      {R"({"type":"array","items":{"$dynamicRef":"#t"},"$defs":{"a":{"$dynamicAnchor":"t","type":"string"}}})",
       {"[\"x\"]"},
       {"[1]"}},
      // The outermost document decides.
      {R"({"$id":"http://x.org/outer","$ref":"list","$defs":{"mine":{"$dynamicAnchor":"t","type":"string"},"list":{"$id":"list","type":"array","items":{"$dynamicRef":"#t"},"$defs":{"any":{"$dynamicAnchor":"t"}}}}})",
       {"[\"x\"]"},
       {"[1]"}},
      // Old ids that only name a place move nothing; a key named $ref is a key.
      {R"({"type":"object","properties":{"a":{"$id":"#/properties/a","$ref":"#/$defs/n"},"$ref":{"type":"null"}},"$defs":{"n":{"type":"integer"}}})",
       {R"({"a":1,"$ref":null})"},
       {R"({"a":null})"}},
  });
}

TEST(GuideReach, OverlappingBranches) {
  check({
      {R"({"oneOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"type":"object","properties":{"b":{"type":"integer"}},"required":["b"]}]})",
       {R"({"a":1})", R"({"b":1})"},
       {R"({"a":1,"b":1})", "{}"}},
      {R"({"oneOf":[{"type":"number","minimum":5},{"type":"number","maximum":8}]})", {"9", "4"}, {"5", "6", "8"}},
      {R"({"oneOf":[{"required":["a"]},{"required":["b"]}],"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}}})",
       {R"({"a":null})", R"({"b":null})"},
       {R"({"a":null,"b":null})", "{}"}},
      {R"({"not":{"type":"integer"}})", {"null", "\"x\""}, {"1"}},
      {R"({"not":{"items":{"type":"integer"}}})", {"[1,null]"}, {"[1]", "[]"}},
      {R"({"type":"number","not":{"enum":[0.5,2]},"minimum":0,"maximum":3})",
       {"0.4", "0.51", "1.99", "2.5", "3"},
       {"0.5", "0.50", "2", "2.0"}},
  });
}

TEST(GuideReach, ListedValuesThatFitTheRest) {
  check({
      {R"({"enum":["a","bb",7,12,null,{"k":1},[1,1]],"maxLength":1,"maximum":9,"required":["k"],"uniqueItems":true})",
       {"\"a\"", "7", "null", R"({"k":1})"},
       {"\"bb\"", "12", "[1,1]"}},
      {R"({"const":5,"type":"integer","minimum":1})", {"5"}, {"4"}},
      {R"({"enum":["x1","y1"],"pattern":"^x","not":{"const":"z"}})", {"\"x1\""}, {"\"y1\""}},
      {R"({"anyOf":[{"minimum":5},{"type":"null"}],"enum":[3,6,null]})", {"6", "null"}, {"3"}},
  });
}

// A pattern is read once, however many values there are; \p{L} alone takes a look at every character.
TEST(GuideReach, ManyListedValuesBesideAPattern) {
  Json many = {{"enum", Json::array()}, {"pattern", "^\\p{L}+$"}};
  for (int i = 0; i < 3000; ++i)
    many["enum"].push_back(i % 2 ? str("a", i) : "b" + std::string(static_cast<size_t>(i / 50), 'x'));
  const auto begin = std::chrono::steady_clock::now();
  const auto c = guide_json_schema(small().words, many);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(takes(small(), *c, "\"bx\""));
  EXPECT_FALSE(takes(small(), *c, "\"a1\""));
}

TEST(GuideReach, ObjectsAndLists) {
  check({
      {R"({"type":"object","required":["n_a","x"],"properties":{"x":{"type":"null"}},"patternProperties":{"^n_":{"type":"integer"}},"additionalProperties":false})",
       {R"({"x":null,"n_a":1})"},
       {R"({"x":null})", R"({"x":null,"n_a":"a"})"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},false]})", {"[1]"}, {"[1,2]"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})", {"[1]"}, {"[1,2]", "[null]"}},
      {R"({"contains":false})", {"1", "null"}, {"[]", "[1]"}},
      {R"({"type":"object","propertyNames":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"allOf":[{"prefixItems":[{"type":"integer"}]},{"prefixItems":[{"minimum":3},{"type":"null"}]}],"type":"array"})",
       {"[3,null]"},
       {"[2,null]", "[3,1]"}},
      // What pydantic writes of a set[str]: texts that begin differently.
      {R"({"type":"array","uniqueItems":true,"items":{"type":"string"}})",
       {"[]", R"(["red"])", R"(["new","fast","2 doors"])", "[\"\xE4\xB8\xAD\",\"\xC3\xA9\",\"s\\n\"]"},
       {R"(["a","a"])", R"(["new","fast","new"])", "[1]", R"(["A","a"])"}},
      {R"({"type":"array","uniqueItems":true,"minItems":2,"items":{"type":"string","maxLength":3}})",
       {R"(["abc","x"])"},
       {R"(["abcd","x"])", R"(["x"])"}},
      {R"({"allOf":[{"multipleOf":4},{"multipleOf":6}],"type":"integer"})", {"12", "0"}, {"4", "6"}},
  });
}

TEST(GuideReach, ManyOptionalProperties) {
  Json wide = {{"type", "object"}, {"properties", Json::object()}};
  for (int i = 0; i < 1200; ++i) wide["properties"]["key" + std::to_string(i)] = {{"type", "integer"}};
  const auto c = guide_json_schema(small().words, wide);
  EXPECT_TRUE(takes(small(), *c, R"({"key3":1, "key700":2,"key1199":3})"));
  EXPECT_FALSE(takes(small(), *c, R"({"key700":1,"key3":2})"));  // in the order of the schema
}

// Zod 4's z.email() and a password as it is often written.
TEST(GuideReach, FormatsAndLookAheads) {
  check({
      {R"x({"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})x",
       {"\"a.b@c.de\""},
       {"\".a@c.de\"", "\"a..b@c.de\"", "\"a@c\""}},
      {R"x({"type":"string","pattern":"^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{4,8}$"})x",
       {"\"aA1b\"", "\"1Abcdefg\""},
       {"\"aaa1\"", "\"AAAA\"", "\"A1\"", "\"A1aaaaaaa\""}},
      {R"({"type":"string","format":"nanoid","pattern":"^[a-z]{3}$"})", {"\"abc\""}, {"\"ab\""}},
      {R"({"type":"string","format":"uuid4"})",
       {"\"123e4567-e89b-42d3-a456-426614174000\""},
       {"\"123e4567-e89b-12d3-a456-426614174000\""}},
      {R"({"type":"string","format":"password","maxLength":2})", {"\"ab\""}, {"\"abc\""}},
      {R"({"type":"string","format":"ipv4network"})", {"\"10.0.0.0/8\""}, {"\"10.0.0.1/8\""}},
  });
}

TEST(GuideReach, ToolsTakeObjectsWhateverTheirParametersSay) {
  for (const char* parameters : {"{}", R"({"description":"none"})", R"({"$ref":"#/$defs/a","$defs":{"a":{}}})"}) {
    const Json tools = Json::array(
        {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parse_json(parameters, "parameters")}}}}});
    const auto c = guide_tool_calls(small().words, {.format = ToolFormat::Hermes, .tools = &tools});
    const std::string head = "<tool_call>\n{\"name\": \"f\", \"arguments\": ", tail = "}\n</tool_call>";
    EXPECT_TRUE(takes(small(), *c, head + R"({"a": 1})" + tail)) << parameters;
    EXPECT_FALSE(takes(small(), *c, head + "1" + tail)) << parameters;
    EXPECT_FALSE(takes(small(), *c, head + "null" + tail)) << parameters;
  }
}

TEST(GuideReach, Grammars) {
  const auto c = guide_grammar(small().words, R"g(# sums
root  ::= term (" + " term)* end?
term  ::= [0-9]{1,3} | "(" root ")"   # nested
      | name
name  ::= [a-z_] [^ ()+]{0,2}
end   ::= "\n" | "\"q\""
)g");
  for (const char* yes : {"1", "1 + 22", "(1 + a) + 333", "a.z\n", "1\"q\""})
    EXPECT_TRUE(takes(small(), *c, yes)) << yes;
  for (const char* no : {"", "1 +", "4444", "(1", "1+1", "abcd"}) EXPECT_FALSE(takes(small(), *c, no)) << no;
  const auto refusal = [](const char* text) -> std::string {
    try {
      guide_grammar(small().words, text);
    } catch (const Error& e) {
      EXPECT_EQ(e.at.fault, Fault::Usage);
      return e.what();
    }
    return "(accepted)";
  };
  EXPECT_NE(refusal("a ::= \"x\"").find("root"), std::string::npos);
  EXPECT_NE(refusal("root ::= b").find("no rule 'b'"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"x\nb ::= \"y\"").find("line 1"), std::string::npos);
  EXPECT_NE(refusal("root ::= (\"x\"\n\nb ::= [a").find("line "), std::string::npos);
  EXPECT_NE(refusal("root ::= \"x\"{3,1}").find("repetition"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"x\" root").find("no answer"), std::string::npos);
}

}  // namespace
}  // namespace apus
