// SPDX-License-Identifier: Apache-2.0
// Structural tags: texts, JSON and tags in an order.
#include "base/error.h"
#include "tests/guide/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

struct TagCase {
  std::string format;  // what stands in "format"
  std::vector<const char*> yes, no;
};

Json tag_of(const std::string& format) {
  return {{"type", "structural_tag"}, {"format", parse_json(format, "format")}};
}

void check_tags(const std::vector<TagCase>& all) {
  for (const auto& [format, yes, no] : all) {
    std::unique_ptr<Constraint> c;
    ASSERT_NO_THROW(c = guide_structural_tag(small().words, tag_of(format))) << format;
    for (const char* text : yes) EXPECT_TRUE(takes(small(), *c, text)) << format << " : " << text;
    for (const char* text : no) EXPECT_FALSE(takes(small(), *c, text)) << format << " : " << text;
  }
}

TEST(GuideTag, FormsOfText) {
  check_tags({
      {R"({"type":"const_string","value":"Hi."})", {"Hi."}, {"Hi", "Hi. "}},
      {R"({"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],"$defs":{"n":{"type":"integer"}}}})",
       {R"({"a": 1})"},
       {R"({"a": null})", "1"}},
      {R"({"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},"style":"qwen_xml"})",
       {"<parameter=a>\nx\n</parameter>\n"},
       {R"({"a":"x"})"}},
      {R"x({"type":"regex","pattern":"\\bcat\\b(?!s).?"})x", {"cat", "cat."}, {"cats"}},
      {R"({"type":"grammar","grammar":"root ::= \"yes\" | \"no\" root"})", {"yes", "nonoyes"}, {"no"}},
      {R"({"type":"any_text"})", {"", "x <y>\n"}, {}},
      {R"({"type":"any_text","excludes":["ab","bc"]})", {"a cb"}, {"xab", "abc", "bbc"}},
  });
}

TEST(GuideTag, FormsOfForms) {
  check_tags({
      {R"({"type":"sequence","elements":[{"type":"const_string","value":"A: "},{"type":"any_text"},{"type":"const_string","value":"!"}]})",
       {"A: !", "A: no! really!"},
       {"A: ", "no!"}},
      {R"({"type":"or","elements":[{"type":"const_string","value":"yes"},{"type":"regex","pattern":"[0-9]+"}]})",
       {"yes", "12"},
       {"yes1", ""}},
      {R"({"type":"sequence","elements":[{"type":"optional","content":{"type":"const_string","value":"a"}},{"type":"star","content":{"type":"const_string","value":"b"}},{"type":"plus","content":{"type":"const_string","value":"c"}},{"type":"repeat","min":1,"max":2,"content":{"type":"const_string","value":"d"}}]})",
       {"cd", "abbccdd"},
       {"ab", "aacd", "cddd", "bd"}},
      {R"({"type":"repeat","min":2,"max":-1,"content":{"type":"const_string","value":"x"}})", {"xx", "xxxx"}, {"x"}},
      {R"({"type":"tag","begin":"<think>","content":{"type":"any_text","excludes":["</think>"]},"end":"</think>"})",
       {"<think></think>", "<think>a < </ b</think>"},
       {"<think>a", "<think></think>x", "<think></think></think>"}},
      {R"x({"type":"tag","begin":"[","content":{"type":"regex","pattern":"a+"},"end":["]",")"]})x",
       {"[a]", "[aa)"},
       {"[a", "[]"}},
      {R"({"type":"tag","begin":"[","content":{"type":"sequence","elements":[{"type":"const_string","value":"x"},{"type":"any_text"}]},"end":["aab",""]})",
       {"[x", "[xy", "[xaaab"},
       {"[", "[xaabc"}},
      {R"({"type":"tags_with_separator","separator":",","tags":[{"begin":"<","content":{"type":"regex","pattern":"a"},"end":">"}]})",
       {"", "<a>", "<a>,<a>,<a>"},
       {"<a>,", "<a><a>", "x"}},
      {R"({"type":"tags_with_separator","separator":",","at_least_one":true,"stop_after_first":true,"tags":[{"begin":"<","content":{"type":"regex","pattern":"a"},"end":">"}]})",
       {"<a>"},
       {"", "<a>,<a>"}},
  });
}

TEST(GuideTag, TriggersInText) {
  const char* tags =
      R"("triggers":["<f="],"tags":[{"type":"tag","begin":"<f=one>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</f>"},{"begin":"<f=two>","content":{"type":"any_text"},"end":"</f>"}])";
  const auto with = [&](const char* more) { return str(R"({"type":"triggered_tags",)", tags, more, "}"); };
  check_tags({
      {with(""),
       {"", "no call", "<f", "<<f=one>12</f> and <f=two>a</ b</f>."},
       {"<f=", "<f=one>x</f>", "<f=three>1</f>", "<f=two>a"}},
      {with(R"(,"stop_after_first":true)"), {"", "say", "say <f=one>1</f>"}, {"<f=one>1</f> "}},
      {with(R"(,"at_least_one":true)"), {"<f=one>1</f>", "<f=one>1</f> b"}, {"", "a <f=one>1</f>"}},
      {with(R"(,"excludes":["bad"])"), {"ba d"}, {"a bad"}},
      {str(R"({"type":"tag","begin":"(","content":)", with(""), R"x(,"end":")"})x"),
       {"(a <f=one>1</f>)"},
       {"(a <f=one>1</f>", "(a) b"}},
  });
}

// As it was written before formats.
TEST(GuideTag, Structures) {
  const auto c = guide_structural_tag(
      small().words,
      parse_json(
          R"({"type":"structural_tag","structures":[{"begin":"<function=f>","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]},"end":"</function>"}],"triggers":["<function="]})",
          "tag"));
  for (const char* yes : {"Hello.", "So: <function=f>{\"n\": 3}</function> Done."})
    EXPECT_TRUE(takes(small(), *c, yes));
  for (const char* no : {"<function=g>", "<function=f>{\"n\": null}</function>"}) EXPECT_FALSE(takes(small(), *c, no));
}

// <|im_start|> in a tag is the token, not its letters.
TEST(GuideTag, SpecialTokensStandForThemselves) {
  const int32_t start = *small().tokenizer->id("<|im_start|>");
  const auto c = guide_structural_tag(
      small().words,
      tag_of(
          R"({"type":"triggered_tags","triggers":["<|im_start|>"],"tags":[{"begin":"<|im_start|>a","content":{"type":"const_string","value":"b"},"end":"c"}]})"));
  EXPECT_TRUE(takes(small(), *c, "x<|im_start|>abc"));
  EXPECT_FALSE(takes(small(), *c, "x<|im_start|>b"));
  ASSERT_TRUE(allows(*c, start));
  c->accept(start);
  EXPECT_TRUE(takes(small(), *c, "abc!"));
  EXPECT_FALSE(takes(small(), *c, "b"));
}

TEST(GuideTag, RefusesWithThePlace) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {R"({"type":"token","token":3})", "structural_tag/format/type: 'token' is not supported"},
      {R"({"value":"x"})", "format/type: is missing"},
      {R"({"type":"sequence","elements":[{"type":"const_string"}]})", "elements/0/value: is missing"},
      {R"({"type":"const_string","value":"x","more":1})", "format/more: is not known"},
      {R"({"type":"any_text","max_tokens":4})", "max_tokens: is not supported"},
      {R"({"type":"json_schema","json_schema":{"type":"unheard"}})", "format/json_schema/type"},
      {R"({"type":"json_schema","json_schema":{},"style":"glm_xml"})", "it can be json or qwen_xml"},
      {R"({"type":"regex","pattern":"a("})", "format/pattern"},
      {R"({"type":"triggered_tags","triggers":["<a"],"tags":[{"begin":"<b","content":{"type":"any_text"},"end":">"}]})",
       "tags/0/begin: must begin with exactly one"},
      {R"({"type":"triggered_tags","triggers":["<a","<b"],"tags":[{"begin":"<a","content":{"type":"any_text"},"end":">"}]})",
       "no tag begins with '<b'"},
      {R"({"type":"triggered_tags","triggers":[""],"tags":[{"begin":"<a","content":{"type":"any_text"},"end":">"}]})",
       "an empty text"},
      {R"({"type":"repeat","min":3,"max":2,"content":{"type":"any_text"}})", "less than min"},
      {R"({"type":"or","elements":[]})", "at least one entry"},
      {R"("x")", "must be an object"},
  };
  const auto refusal = [](const Json& tag) -> std::string {
    try {
      guide_structural_tag(small().words, tag);
    } catch (const Error& e) {
      EXPECT_EQ(e.at.fault, Fault::Usage);
      return e.what();
    }
    return "(accepted)";
  };
  for (const auto& [format, why] : cases)
    EXPECT_NE(refusal(tag_of(format)).find(why), std::string::npos) << refusal(tag_of(format));
  EXPECT_NE(refusal({{"type", "structural_tag"}}).find("needs a \"format\""), std::string::npos);
  Json deep = {{"type", "any_text"}};
  for (int i = 0; i < 60; ++i) deep = {{"type", "plus"}, {"content", deep}};
  EXPECT_NE(refusal({{"format", deep}}).find("nest more than"), std::string::npos);
  Json many = {{"type", "any_text"}, {"excludes", Json::array()}};
  for (int i = 0; i < 2000; ++i) many["excludes"].push_back(str(i, "-----"));
  EXPECT_NE(refusal({{"format", many}}).find("5000 characters"), std::string::npos);
}

TEST(GuideTag, AnswersThatRambleFit) {
  const auto c = guide_structural_tag(
      bundled().words,
      tag_of(
          R"({"type":"sequence","elements":[{"type":"tag","begin":"<think>","content":{"type":"regex","pattern":"[a-z ]{0,30}"},"end":"</think>"},{"type":"json_schema","json_schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}]})"));
  Random random(4, "tag");
  for (int i = 0; i < 20; ++i) {
    const auto said = ramble(bundled(), *c, random);
    ASSERT_TRUE(said);
    const size_t end = said->find("</think>");
    ASSERT_TRUE(said->starts_with("<think>") && end != std::string::npos) << *said;
    EXPECT_TRUE(parse_json(said->substr(end + 8), "answer")["n"].is_number_integer()) << *said;
  }
}

}  // namespace
}  // namespace apus
