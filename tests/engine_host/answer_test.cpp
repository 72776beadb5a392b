// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/assets.h"
#include "base/random.h"
#include "engine/answer/answer_text.h"

namespace apus {
namespace {

std::string through(StopStrings stops, const std::vector<std::string>& pieces, bool* found = nullptr) {
  std::string out;
  for (const auto& p : pieces) out += stops.push(p);
  out += stops.flush();
  if (found) *found = stops.found();
  return out;
}

TEST(StopStrings, EndsTheTextWhereTheyBegin) {
  bool found = false;
  EXPECT_EQ(through(StopStrings({"END"}), {"abEND", "cd"}, &found), "ab");
  EXPECT_TRUE(found);
  EXPECT_EQ(through(StopStrings({"END"}, true), {"abENDcd", "ef"}), "abEND");
  EXPECT_EQ(through(StopStrings({"END"}), {"abEN"}, &found), "abEN");
  EXPECT_FALSE(found);
  EXPECT_EQ(through(StopStrings({"xyz", "b"}), {"abxyz"}), "a") << "the first place counts, not the first string";
  EXPECT_EQ(through(StopStrings({"bcd", "c"}), {"abcd"}), "ab") << "the first that is complete counts";
  EXPECT_EQ(through(StopStrings({"c", "bc"}), {"abc"}), "a");
  EXPECT_EQ(through(StopStrings({}), {"a", "b"}), "ab");
  EXPECT_EQ(through(StopStrings({""}), {"a", "b"}), "ab") << "an empty string stops nothing";
}

TEST(StopStrings, HoldsBackWhatMayBeginOne) {
  StopStrings s({"</s>", "\n\n"});
  EXPECT_EQ(s.push("a<"), "a");
  EXPECT_EQ(s.push("b\n"), "<b");
  EXPECT_EQ(s.push("c</"), "\nc");
  EXPECT_EQ(s.push("s"), "");
  EXPECT_EQ(s.push(">d"), "");
  EXPECT_TRUE(s.found());
  EXPECT_EQ(s.push("more"), "");
}

// However the text is cut, the result is that of searching the whole.
TEST(StopStrings, AnyCutGivesTheSame) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const auto text_of = [&](uint64_t most) {
      std::string s;
      for (uint64_t n = random.below(most); n > 0; --n) s += static_cast<char>('a' + random.below(2));
      return s;
    };
    const std::string text = text_of(20);
    std::vector<std::string> stops{"a" + text_of(4), text_of(5) + "b"};
    const bool keep = random.below(2);
    size_t begin = 0, end = 0;
    for (size_t e = 1; e <= text.size() && end == 0; ++e)
      for (size_t b = 0; b < e && end == 0; ++b)
        for (const auto& stop : stops)
          if (text.substr(b, e - b) == stop) begin = b, end = e;
    const std::string whole = end == 0 ? text : text.substr(0, keep ? end : begin);
    StopStrings s(stops, keep);
    std::string out;
    for (size_t i = 0; i < text.size() && !s.found();) {
      const size_t n = 1 + random.below(3);
      out += s.push(text.substr(i, n));
      i += n;
      ASSERT_EQ(out, whole.substr(0, out.size())) << "shown too early";
    }
    out += s.flush();
    ASSERT_EQ(out, whole) << seed;
  }
}

class AnswerTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::from_json(asset("tokenizer/tokenizer.json"));
  static EngineEvent event(int32_t id, Finish finish = Finish::None) {
    EngineEvent e;
    e.tokens.push_back({.id = id});
    e.finish = finish;
    return e;
  }
};

TEST_F(AnswerTest, TheStopTokenIsNoText) {
  const auto ids = tokenizer->encode("Hello there, \u4f60\u597d!");
  const int32_t end = ids.back() == 5 ? 6 : 5;
  AnswerText answer(tokenizer, {.stop_ids = {end}});
  std::string shown;
  for (const int32_t id : ids) shown += answer.push(event(id));
  shown += answer.push(event(end, Finish::Stop));
  EXPECT_EQ(shown, "Hello there, \u4f60\u597d!");
  EXPECT_EQ(answer.text(), shown);
  EXPECT_EQ(answer.finish(), Finish::Stop);
  EXPECT_EQ(answer.tokens().size(), ids.size() + 1);
}

TEST_F(AnswerTest, AStopStringEndsItInTheMiddle) {
  const auto ids = tokenizer->encode("one two three four");
  AnswerText answer(tokenizer, {.stops = {" three"}});
  for (const int32_t id : ids) answer.push(event(id));
  EXPECT_EQ(answer.text(), "one two");
  EXPECT_EQ(answer.finish(), Finish::Stop);
  EXPECT_LT(answer.tokens().size(), ids.size() + 1);
}

TEST_F(AnswerTest, AnUnfinishedCharacterComesWithTheEnd) {
  auto ids = tokenizer->encode("a\u9f98");
  ids.pop_back();
  AnswerText answer(tokenizer, {});
  std::string shown;
  for (size_t i = 0; i < ids.size(); ++i)
    shown += answer.push(event(ids[i], i + 1 == ids.size() ? Finish::Length : Finish::None));
  EXPECT_EQ(shown, tokenizer->decode(ids));
  EXPECT_EQ(answer.finish(), Finish::Length);
}

}  // namespace
}  // namespace apus
