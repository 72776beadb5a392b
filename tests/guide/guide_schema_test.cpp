// SPDX-License-Identifier: Apache-2.0
// JSON schemas as guides: what each takes and does not, ranges, what is refused, and hostile schemas.
#include <chrono>
#include <functional>

#include "base/error.h"
#include "guide/guide.h"
#include "tests/guide/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

Json schema(const char* text) { return parse_json(text, "schema"); }

struct Case {
  const char* schema;
  std::vector<const char*> yes, no;
};

const std::vector<Case> kCases = {
    // $dynamicRef is a $ref where its place has no $dynamicAnchor of that name: an $anchor there, none in the same
    // document, or a pointer.
    {R"({"$id":"https://a.b/root","$ref":"list","$defs":{"foo":{"$dynamicAnchor":"items","type":"string"},"list":{"$id":"list",
      "type":"array","minItems":1,"items":{"$dynamicRef":"#items"},"$defs":{"items":{"$anchor":"items","type":"integer"}}}}})",
     {"[1]"},
     {"[\"a\"]"}},
    {R"({"$id":"https://a.b/root","$ref":"list","$defs":{"foo":{"$anchor":"items","type":"string"},"list":{"$id":"list",
      "type":"array","minItems":1,"items":{"$dynamicRef":"#items"},"$defs":{"items":{"$dynamicAnchor":"items","type":"integer"}}}}})",
     {"[1]"},
     {"[\"a\"]"}},
    {R"({"$id":"https://a.b/root","$dynamicAnchor":"x","$ref":"list","$defs":{"list":{"$id":"list","type":"array","minItems":1,
      "items":{"$dynamicRef":"#/$defs/x"},"$defs":{"x":{"$dynamicAnchor":"x","type":"integer"}}}}})",
     {"[1]"},
     {"[\"a\"]", "[[1]]"}},
    // And means the outermost document's where it has one.
    {R"({"$id":"https://a.b/root","$ref":"list","$defs":{"foo":{"$dynamicAnchor":"items","type":"string"},"list":{"$id":"list",
      "type":"array","minItems":1,"items":{"$dynamicRef":"#items"},"$defs":{"items":{"$dynamicAnchor":"items"}}}}})",
     {"[\"a\"]"},
     {"[1]"}},
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
    // What zod 4 writes of z.number().int(), and other bounds near the ends of doubles and of 64 bits.
    {R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
     {"0", "-1", "9007199254740991", "-9007199254740991", "9007199254740990", "1000000000000000"},
     {"9007199254740992", "-9007199254740992", "9999999999999999", "10000000000000000", "1.0"}},
    {R"({"type":"integer","exclusiveMinimum":9007199254740993,"exclusiveMaximum":9223372036854775807})",
     {"9007199254740994", "9223372036854775806"},
     {"9007199254740993", "9223372036854775807", "1"}},
    {R"({"type":"integer","minimum":-9223372036854775808,"maximum":18446744073709551615})",
     {"-9223372036854775808", "9223372036854775807"},
     {"-9223372036854775809", "9223372036854775808"}},
    {R"({"type":"integer","minimum":2000000000000000000})", {"2000000000000000000"}, {"1999999999999999999"}},
    {R"({"type":"integer","minimum":-1e300,"maximum":1e300,"not":{"enum":[9007199254740993]}})",
     {"9007199254740992", "9007199254740994"},
     {"9007199254740993"}},
    {R"({"type":"integer","multipleOf":450359962737049,"minimum":9000000000000000,"maximum":9100000000000000})",
     {"9007199254740980"},
     {"9007199254740991"}},
    {R"({"type":"number","minimum":-9007199254740991,"maximum":1.7976931348623157e308})",
     {"-1.5", "999999999999999", "0.25"},
     {"1e400"}},
    {R"({"type":"number","minimum":2e15,"maximum":2000000000000001})",
     {"2000000000000000", "2000000000000001"},
     {"1999999999999999", "2000000000000002", "3"}},
    {R"({"type":"number","minimum":0.12345678901234567,"maximum":0.9999999999999999})",
     {"0.13", "0.5", "0.9999999999999"},
     {"0.12345678901234", "1", "1.0", "0.1"}},
    {R"({"type":"number","exclusiveMinimum":1e-300,"maximum":1})", {"0.1", "1"}, {"0", "0.0", "-1"}},
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

TEST(GuideSchema, TakesWhatIsValid) {
  for (const auto& [text, yes, no] : kCases) {
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
      {R"({"type":"number","multipleOf":0.5,"not":{"enum":[1]}})", "#/not"},
      {R"x({"type":"object","patternProperties":{"(x)\\1":{}}})x", "#/patternProperties"},
      {R"({"type":"object","patternProperties":3})", "#/patternProperties"},
      {R"({"type":"object","propertyNames":{"not":{"const":"x"}}})", "#/propertyNames/not"},
      {R"({"type":"array","items":{"type":"array","uniqueItems":true}})", "#/items/uniqueItems"},
      {R"({"type":"array","items":{"type":"string"},"contains":{"pattern":"x"},"maxContains":3})",
       "#/maxContains/pattern"},
      {R"({"type":"array","contains":{},"maxContains":3000})", "#/contains"},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":1000}})", "#/uniqueItems"},
      {R"({"type":"array","uniqueItems":true,"items":{"type":"integer","minimum":1,"maximum":200},"minItems":150})",
       "#/uniqueItems"},
      {R"({"type":"integer","minimum":1e20})", "#/minimum"},
      {R"({"type":"integer","exclusiveMaximum":-1e20})", "#/exclusiveMaximum"},
      {R"({"type":"integer","multipleOf":3000})", "#/multipleOf"},
      {R"({"type":"integer","multipleOf":0})", "#/multipleOf"},
      {R"({"if":{"uniqueItems":true},"then":{}})", "#/if/uniqueItems"},
      {R"({"type":"object","not":{"minProperties":2},"unevaluatedProperties":false})", "#/not/minProperties"},
      {R"({"type":"object","if":{"properties":{"k":{"const":1}}},"then":{"required":["k"]},"unevaluatedProperties":false})",
       "#/if/k"},
      {R"({"type":"object","required":["a"],"allOf":[{"anyOf":[{"required":["a"]},{"required":["b"]}],"unevaluatedProperties":false}]})",
       "/unevaluatedProperties"},
      {R"({"type":"array","contains":{"const":1},"unevaluatedItems":false})", "#/unevaluatedItems"},
      {R"({"$dynamicRef":"#x"})", "#/$dynamicRef"},
      {R"({"type":"strin"})", "#/type"},
      {R"({"type":"string","format":"colour"})", "#/format"},
      {R"x({"type":"string","pattern":"(x)\\1"})x", "#/pattern"},
      {R"({"type":"string","pattern":"a*","maxLength":30000})", "more than"},
      {R"({"$ref":"#/$defs/none"})", "#/$ref"},
      {R"({"$ref":"http://example.com/schema"})", "#/$ref"},
      {R"({"$ref":"#"})", "circle"},
      {R"({"oneOf":[{"type":"string"},{"pattern":"x"}]})", "#/oneOf"},
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
  EXPECT_NE(many.find("#/properties: more than 1800"), std::string::npos) << many;
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
