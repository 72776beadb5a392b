// SPDX-License-Identifier: Apache-2.0
// Patterns that look around: word borders, look-ahead, look-behind, anchors in the middle.
#include <chrono>

#include "base/error.h"
#include "base/files.h"
#include "guide/texts.h"
#include "tests/guide/guide_tools.h"

namespace apus {
namespace {

using namespace testing_guide;

std::string refused_look(const std::string& pattern) {
  try {
    guide_regex(small().words, pattern);
  } catch (const Error& e) {
    EXPECT_EQ(e.at.fault, Fault::Usage) << pattern;
    return e.what();
  }
  return "(accepted)";
}

// Every text of Python's table through the automaton, some also as answers.
TEST(GuideLook, AgreesWithPython) {
  const Json table = parse_json(read_file(test::source_dir() / "tests/data/guide/looks.json"), "looks.json");
  const auto texts = table["texts"].get<std::vector<std::string>>();
  for (const Json& row : table["patterns"]) {
    const auto pattern = row["pattern"].get<std::string>();
    const auto found = row["search"].get<std::string>(), whole = row["whole"].get<std::string>();
    guide::Texts both("pattern");
    both.add(guide::parse_search(pattern, "pattern"));
    both.add(guide::parse_regex(pattern, "pattern"));
    const auto schema = guide_json_schema(small().words, {{"type", "string"}, {"pattern", pattern}});
    const bool any = whole.find('1') != std::string::npos;
    const auto regex = any ? guide_regex(small().words, pattern) : nullptr;
    for (size_t i = 0; i < texts.size(); ++i) {
      const bool in = found[i] == '1', all = whole[i] == '1';
      EXPECT_EQ(both.matches(texts[i]), (guide::Texts::Matches{in, all})) << pattern << " : " << texts[i];
      if (i % 4) continue;
      EXPECT_EQ(takes(small(), *schema, "\"" + texts[i] + "\""), in) << pattern << " : " << texts[i];
      if (regex) EXPECT_EQ(takes(small(), *regex, texts[i]), all) << pattern << " : " << texts[i];
    }
  }
}

// A word border sees characters of several bytes, and what JSON escapes is what stands in the text.
TEST(GuideLook, SeesCharactersNotBytes) {
  const auto c = guide_json_schema(small().words, {{"type", "string"}, {"pattern", R"(^.\bx\b[^a]$)"}});
  for (const char* yes : {"\"\xE4\xB8\xADx\xC3\xA9\"", R"("\"x\\")", R"("-x\t")"})
    EXPECT_TRUE(takes(small(), *c, yes)) << yes;
  for (const char* no : {"\"xx-\"", "\"-xx\"", R"("\nx-")"}) EXPECT_FALSE(takes(small(), *c, no)) << no;
}

TEST(GuideLook, HoldsBesideOtherKeywords) {
  const auto check = [](const char* schema, std::vector<const char*> yes, std::vector<const char*> no) {
    const auto c = guide_json_schema(small().words, parse_json(schema, "schema"));
    for (const char* text : yes) EXPECT_TRUE(takes(small(), *c, text)) << schema << text;
    for (const char* text : no) EXPECT_FALSE(takes(small(), *c, text)) << schema << text;
  };
  check(R"({"type":"string","pattern":"\\bcat\\b","maxLength":5,"not":{"const":"a cat"}})", {"\"cat\"", "\"cat !\""},
        {"\"a cat\"", "\"cats\"", "\"my cat\""});
  check(R"x({"type":"object","patternProperties":{"^(?!x)":{"type":"integer"}},"additionalProperties":false})x",
        {R"({"a":1})", "{}"}, {R"({"xa":1})"});
  check(R"x({"type":"object","propertyNames":{"pattern":"^(?!x)"},"additionalProperties":{"type":"null"}})x",
        {R"({"a":null})"}, {R"({"xa":null})"});
  check(R"({"enum":["a b","ab"],"pattern":"a\\b"})", {"\"a b\""}, {"\"ab\""});
}

TEST(GuideLook, AnswersThatRambleMatch) {
  const std::string pattern = R"((?=[A-Z])(?!\w*_)\w{2,9}(?:\b[ ,]\b\w{1,9}){1,3}(?<!s)\.)";
  const auto c = guide_regex(bundled().words, pattern);
  guide::Texts text("pattern");
  text.add(guide::parse_regex(pattern, "pattern"));
  Random random(3, "look");
  for (int i = 0; i < 20; ++i) {
    const auto said = ramble(bundled(), *c, random);
    ASSERT_TRUE(said);
    EXPECT_TRUE(text.matches(*said)[0]) << *said;
  }
}

TEST(GuideLook, RefusesWhatItCannotFollow) {
  EXPECT_NE(refused_look("a(?=b)c").find("no answer"), std::string::npos);
  EXPECT_NE(refused_look("(?<=a\\b)c").find("within a look-behind"), std::string::npos);
  EXPECT_NE(refused_look("(?=a)*b").find("cannot be repeated"), std::string::npos);
  EXPECT_NE(refused_look("(?=a").find("without its ')'"), std::string::npos);
  EXPECT_NE(refused_look("(?>a)b").find("groups"), std::string::npos);
  EXPECT_NE(refused_look("(a)\\b\\1").find("back-references"), std::string::npos);
}

// Bounded, whatever is asked for.
TEST(GuideLook, HostilePatternsEndSoon) {
  const auto begin = std::chrono::steady_clock::now();
  std::string many = "^", nested = "a";
  for (int i = 0; i < 20; ++i) many += "(?=.*" + std::string(1, static_cast<char>('a' + i)) + ".{5})";
  for (int i = 0; i < 60; ++i) nested = "(?!.*" + nested + ".)b*";
  for (const std::string& pattern :
       {many + ".*", nested, std::string("(?:(?=.*a.{12})b|(?!.*c.{12})a)*"),
        std::string("(?:\\b|(?<=.*x.{9}))*.{0,900}\\b"), std::string("(?=(?=(?=.{1,300}x).{1,300}y).{1,300}z).*")}) {
    const std::string why = refused_look(pattern);
    EXPECT_TRUE(why == "(accepted)" || why.find("more than") != std::string::npos ||
                why.find("too complex") != std::string::npos || why.find("no answer") != std::string::npos)
        << pattern << ": " << why;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace apus
