// SPDX-License-Identifier: Apache-2.0
// Guides of texts: regular expressions, choices, any JSON, tool calls; masks against brute force; hostile patterns.
#include "guide/guide.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/guide/guide_tools.h"
#include "tests/refusal.h"
#include "text/unicode.h"

namespace apus {
namespace {

using namespace testing_guide;
using test::refusal;

struct PatternCase {
  const char* pattern;
  std::vector<std::string> yes, no;
};

TEST(GuideRegex, TakesWhatMatches) {
  const std::vector<PatternCase> cases = {
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"^abc$", {"abc"}, {"ab", "abcc"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"[a-c]+[^a-c]", {"ax", "abcabc!", "c\n"}, {"a", "xa", "abca"}},
      {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab", "aba"}},
      {"a{3}", {"aaa"}, {"aa", "aaaa"}},
      {"a{2,}", {"aa", "aaaaa"}, {"a", ""}},
      {"a{,2}", {"a{,2}"}, {"", "aa"}},
      {"(a?){3}", {"", "a", "aaa"}, {"aaaa"}},
      {"(a*)*b", {"b", "aaab"}, {"a"}},
      {"\\d{3}-\\d{4}", {"555-1234"}, {"5555-123", "555-12345"}},
      {"\\w+@\\w+\\.(com|org)", {"a_1@b.com", "x@y.org"}, {"@b.com", "a@b.net"}},
      {".", {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"}, {"\n", "", "xy", "\xC3", "\xA9"}},
      {"[\xC3\xA0-\xC3\xBF]", {"\xC3\xA9"}, {"a", "\xC4\x80"}},
      {"[^\xC3\xA9]", {"a", "\xC3\xA8", "\xE4\xB8\xAD"}, {"\xC3\xA9", "\xC3"}},
      {"\\u4e2d\\x41",
       {"\xE4\xB8\xAD"
        "A"},
       {"A"}},
      {"\\u{1F600}", {"\xF0\x9F\x98\x80"}, {"\xF0\x9F\x98\x81"}},
      {"(?:a|b)(?<name>c)", {"ac", "bc"}, {"abc"}},
      {"a+?b*?", {"a", "aab"}, {"b"}},
      {"[\\]\\-a]", {"]", "-", "a"}, {"b"}},
      {"\\p{L}+", {"abc", "\xC3\xA9t\xC3\xA9", "\xE4\xB8\xAD"}, {"1", "a1"}},
      {"\\s\\S", {" x", "\tx"}, {"xx", "  "}},
  };
  for (const auto& [pattern, yes, no] : cases) {
    const auto c = guide_regex(small().words, pattern);
    for (const auto& text : yes) EXPECT_TRUE(takes(small(), *c, text)) << pattern << " : " << text;
    for (const auto& text : no) EXPECT_FALSE(takes(small(), *c, text)) << pattern << " : " << text;
  }
}

TEST(GuideRegex, FollowsWholeTokens) {
  const auto c = guide_regex(bundled().words, "(yes|no), [a-z ]{1,30}\\.");
  Random random(5, "regex");
  for (int i = 0; i < 50; ++i) {
    const auto text = ramble(bundled(), *c, random);
    ASSERT_TRUE(text);
    EXPECT_TRUE(text->starts_with("yes, ") || text->starts_with("no, ")) << *text;
    EXPECT_TRUE(text->ends_with('.') && text->size() <= 36) << *text;
  }
}

TEST(GuideRegex, RefusesWhatAnAutomatonCannotFollow) {
  const std::vector<std::pair<std::string, std::string>> cases = {{"(a)\\1", "back-references"},
                                                                  {"a(b", "without its ')'"},
                                                                  {"a)b", "without its '('"},
                                                                  {"a^b", "no answer"},
                                                                  {"[a", "without its ']'"},
                                                                  {"*a", "nothing to repeat"},
                                                                  {"a{2,1}", "from more to fewer"},
                                                                  {"a{99999999}", "repetitions"},
                                                                  {"\\p{Lu}", "only L, N, M and P"},
                                                                  {"[^\\s\\S]", "no answer"},
                                                                  {std::string(200, '('), "too deeply"},
                                                                  {std::string(70000, 'a'), "longer than"},
                                                                  {"\xFF", "UTF-8"},
                                                                  {"\\u{110000}", "beyond Unicode"},
                                                                  {"\\", "too early"}};
  for (const auto& [pattern, why] : cases)
    EXPECT_NE(refusal(Fault::Usage, [&, text = pattern] { guide_regex(small().words, text); }).find(why),
              std::string::npos)
        << pattern;
}

// Bounded time and memory, whatever is asked for; the error names the limit.
TEST(GuideRegex, HostilePatternsEnd) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> patterns = {"(((a?){1000}){1000}){1000}",
                                             "(.*.*.*)*x",
                                             "(a|a|a|a)*b",
                                             ".*a.{1000}",
                                             "(x{1,1000}){1,1000}",
                                             "((((((((.*)*)*)*)*)*)*)*)*",
                                             "(a{0,100000}b?){0,100000}",
                                             "(\\w{2,9}|\\w{3,7}|.{1,50}){4,200}"};
  for (const auto& pattern : patterns) {
    std::string why;  // none: it can be followed
    try {
      const auto c = guide_regex(bundled().words, pattern);
      Random random(3, pattern);
      for (int i = 0; i < 20; ++i) {
        auto tokens = allowed(*c);
        std::erase(tokens, bundled().stop);
        if (tokens.empty()) break;
        c->accept(tokens[random.below(tokens.size())]);
      }
    } catch (const Error& e) {
      EXPECT_EQ(e.at.fault, Fault::Usage);
      why = e.what();
    }
    EXPECT_TRUE(why.empty() || why.find("ambiguous") != std::string::npos) << pattern << ": " << why;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

TEST(GuideChoice, OneOfTheTexts) {
  const auto c = guide_choice(bundled().words, {"red", "green", "green tea", "\xE7\xBB\xBF"});
  for (const char* text : {"red", "green", "green tea", "\xE7\xBB\xBF"}) EXPECT_TRUE(takes(bundled(), *c, text));
  for (const char* text : {"", "gre", "green te", "redgreen", "blue"}) EXPECT_FALSE(takes(bundled(), *c, text));
  Random random(1, "choice");
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(ramble(bundled(), *c, random).value_or("(none)"));
  EXPECT_EQ(seen, (std::set<std::string>{"red", "green", "green tea", "\xE7\xBB\xBF"}));
  EXPECT_FALSE(refusal(Fault::Usage, [] { guide_choice(small().words, {}); }).empty());
  EXPECT_FALSE(refusal(Fault::Usage, [] { guide_choice(small().words, {"a", ""}); }).empty());
}

TEST(GuideChoice, FinishedWhenNothingCanFollow) {
  const auto c = guide_choice(small().words, {"a", "ab"});
  const auto feed = [&](const char* text) { c->accept(small().tokenizer->encode(text)[0]); };
  EXPECT_FALSE(c->finished());
  feed("a");
  EXPECT_FALSE(c->finished()) << "a b may follow";
  EXPECT_TRUE(allows(*c, small().stop));
  feed("b");
  EXPECT_TRUE(c->finished());
  EXPECT_EQ(allowed(*c), std::vector<int32_t>{small().stop});
}

TEST(GuideJson, AnyObjectParses) {
  for (const Words* w : {&small(), &bundled()}) {
    const auto c = guide_json_object(w->words);
    Random random(7, "object");
    for (int i = 0; i < 60; ++i) {
      const auto text = ramble(*w, *c, random, 60);
      ASSERT_TRUE(text);
      EXPECT_EQ(unicode::valid_prefix(*text), text->size());
      EXPECT_TRUE(parse_json(*text, "answer").is_object()) << *text;
    }
    for (const char* text : {"{}", "{\"a\": [1, -2.5e3, {\"b\":null}], \"c\":\"\\u00e9\\n\"}", "{\n  \"a\": true\n}"})
      EXPECT_TRUE(takes(*w, *c, text)) << text;
    for (const char* text : {"[]", "1", "{\"a\":01}", "{\"a\":1,}", "{a:1}", "{\"a\":\"\n\"}", "{\"a\":\"\\x\"}",
                             "{\"a\":tru}", "{\"a\":\"\\ud800\"}"})
      EXPECT_FALSE(takes(*w, *c, text)) << text;
  }
}

// The mask is right for every token: as if each were tried byte by byte.
TEST(Guide, MasksEqualBruteForce) {
  const Json schema = {{"type", "object"},
                       {"properties",
                        {{"name", {{"type", "string"}, {"maxLength", 9}}},
                         {"n", {{"type", "integer"}, {"minimum", -5}, {"maximum", 120}}}}},
                       {"required", {"name"}},
                       {"additionalProperties", {{"type", "array"}}}};
  std::vector<std::unique_ptr<Constraint>> guides;
  guides.push_back(guide_json_schema(small().words, schema));
  guides.push_back(guide_regex(small().words, "[a-f\xC3\xA9]+(, the \\w{2,5}){1,3}\\.?"));
  guides.push_back(guide_choice(small().words, {"the", "there", "then what"}));
  Random random(11, "masks");
  for (const auto& guide : guides)
    for (int run = 0; run < 6; ++run) {
      const auto c = guide->clone();
      for (int step = 0; step < 25; ++step) {
        const auto got = allowed(*c);
        std::vector<int32_t> wanted;
        for (const auto& [bytes, token] : small().bytes) {
          const auto probe = c->clone();
          bool fine = true;
          for (const char b : bytes) {
            const auto one = std::find_if(small().bytes.begin(), small().bytes.end(),
                                          [&](const auto& e) { return e.first == std::string(1, b); });
            fine = fine && allows(*probe, one->second);
            if (fine) probe->accept(one->second);
          }
          if (fine && token != small().stop) wanted.push_back(token);
        }
        std::sort(wanted.begin(), wanted.end());
        auto without_stop = got;
        std::erase(without_stop, small().stop);
        ASSERT_EQ(without_stop, wanted);
        if (without_stop.empty()) break;
        c->accept(without_stop[random.below(without_stop.size())]);
      }
    }
}

TEST(Guide, ClonesGoTheirOwnWays) {
  const auto a = guide_choice(small().words, {"ab", "cd"});
  const auto b = a->clone();
  a->accept(small().tokenizer->encode("a")[0]);
  EXPECT_EQ(allowed(*a).size(), 1u);
  EXPECT_TRUE(allows(*b, small().tokenizer->encode("c")[0]));
}

// What was found is forgotten when it has grown too large; who is in the middle does not notice.
TEST(Guide, GoesOnWhenTheTablesAreMadeAnew) {
  const auto c = guide_regex(small().words, "(a{150000}b){2}");
  const int32_t a = small().tokenizer->encode("a")[0], b = small().tokenizer->encode("b")[0];
  const auto other = c->clone();
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 150'000; ++i) c->accept(a);
    EXPECT_EQ(allowed(*c), std::vector<int32_t>{b});
    c->accept(b);
  }
  EXPECT_TRUE(c->finished());
  EXPECT_TRUE(allows(*other, a));
}

TEST(Guide, ManyThreadsShareOneGuide) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Random random(t, "threads");
      for (int i = 0; i < 10; ++i) {
        const auto text = ramble(bundled(), *guide_json_object(bundled().words), random);
        wrong += !text || !Json::accept(*text);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Guide, AfterAMarker) {
  const auto& w = bundled();
  const auto c = guide_after(w.words, "</think>", guide_choice(w.words, {"done"}));
  EXPECT_FALSE(allows(*c, w.stop));
  for (const int32_t t : w.tokenizer->encode("some thought</think>")) {
    EXPECT_TRUE(allows(*c, t));
    c->accept(t);
  }
  EXPECT_TRUE(takes(w, *c, "done"));
  EXPECT_TRUE(takes(w, *c, "\n\ndone"));
  EXPECT_FALSE(takes(w, *c, "\n\n\ndone"));
  EXPECT_FALSE(takes(w, *c, "more"));
  // A marker of several special tokens with text between.
  const std::string head = "<|im_start|>final<|im_end|>";
  const auto d = guide_after(w.words, head, guide_choice(w.words, {"done"}));
  for (const int32_t t : w.tokenizer->encode("<|im_start|>other<|im_end|>" + head)) d->accept(t);
  EXPECT_TRUE(takes(w, *d, "done"));
  EXPECT_FALSE(takes(w, *d, "more"));
}

const Json kTalkTools = Json::parse(R"([
  {"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
     "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
     "required": ["city"]}}},
  {"type": "function", "function": {"name": "now"}}])");

TEST(GuideTools, CallsAreReadBack) {
  Random random(9, "tools");
  for (const ToolFormat format : {ToolFormat::Hermes, ToolFormat::Llama3, ToolFormat::QwenCoder, ToolFormat::DeepSeek,
                                  ToolFormat::Mistral, ToolFormat::Kimi, ToolFormat::ToolList, ToolFormat::ToolCalls,
                                  ToolFormat::Plugin, ToolFormat::Harmony, ToolFormat::Glm}) {
    const auto c = guide_tool_calls(bundled().words, {.format = format, .tools = &kTalkTools});
    std::set<std::string> names;
    for (int i = 0; i < 40; ++i) {
      const auto text = ramble(bundled(), *c, random, 60,
                               format == ToolFormat::QwenCoder ? "</parameter>\n"
                               : format == ToolFormat::Glm     ? "</arg_value>\n"
                                                               : "");
      ASSERT_TRUE(text) << tool_format_name(format);
      const auto pieces = parse_chat(*text, {.format = format, .tools = &kTalkTools});
      EXPECT_EQ(pieces.content, "") << *text;
      ASSERT_FALSE(pieces.calls.empty()) << *text;
      for (const auto& call : pieces.calls) {
        names.insert(call.name);
        const Json arguments = parse_json(call.arguments, "arguments");
        if (call.name != "weather") continue;
        EXPECT_TRUE(arguments.contains("city") && arguments["city"].is_string()) << *text;
        const int days = arguments.value("days", 1);
        EXPECT_TRUE(days >= 1 && days <= 7) << *text;
      }
    }
    EXPECT_EQ(names, (std::set<std::string>{"now", "weather"})) << tool_format_name(format);
  }
}

TEST(GuideTools, NamedAndSingle) {
  const auto c = guide_tool_calls(bundled().words, {.tools = &kTalkTools, .only = "now", .parallel = false});
  EXPECT_TRUE(takes(bundled(), *c, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"));
  const std::string one = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn\"}}\n</tool_call>";
  EXPECT_FALSE(takes(bundled(), *c, one));
  const auto many = guide_tool_calls(bundled().words, {.tools = &kTalkTools});
  EXPECT_TRUE(takes(bundled(), *many, one + "\n" + one));
  EXPECT_FALSE(takes(bundled(), *many, one + "\n"));
  EXPECT_NE(refusal(Fault::Usage, [] { guide_tool_calls(small().words, {.tools = &kTalkTools, .only = "gone"}); })
                .find("gone"),
            std::string::npos);
}

}  // namespace
}  // namespace apus
