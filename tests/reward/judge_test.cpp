// SPDX-License-Identifier: Apache-2.0
// A judge over HTTP: what it is asked, what its words are worth, and what happens when it is not there.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "reward/reward.h"
#include "tests/json_server.h"

namespace apus {
namespace {

struct FakeJudge : test::JsonServer {
  using JsonServer::JsonServer;
  static std::string says(const std::string& text) {
    return Json{{"choices", Json::array({{{"message", {{"content", text}}}}})}}.dump();
  }
};

RewardOptions judged_at(const std::string& url) {
  RewardOptions o;
  o.reward_funcs = {"judge"}, o.judge_url = url, o.reward_timeout = 5;
  return o;
}

std::vector<double> judged(const RewardOptions& o, const std::vector<std::string>& texts, const Json& row) {
  std::vector<RewardInput> answers;
  for (const std::string& text : texts) answers.push_back({.completion = text, .tokens = {1}, .row = &row});
  return Rewards(o).score(answers).functions[0];
}

std::string fault(const RewardOptions& o) {
  const Json row = Json::object();
  try {
    judged(o, {"x"}, row);
  } catch (const Error& error) {
    EXPECT_EQ(error.at.fault, Fault::Data);
    return error.what();
  }
  return "";
}

TEST(Judge, IsAskedAboutEveryAnswer) {
  std::mutex mutex;
  std::vector<std::string> asked;
  const FakeJudge judge([&](const Json& body) {
    const std::string text = body["messages"][0]["content"];
    {
      const std::lock_guard lock(mutex);
      asked.push_back(text);
    }
    EXPECT_EQ(body["model"], "big");
    const bool right = text.find("said: 4;") != std::string::npos;
    return std::pair(200, FakeJudge::says(right ? "Right.\nScore: 8.5/10" : "No, 2 + 2 is 4. Score: 1."));
  });
  RewardOptions o = judged_at(judge.url());
  o.judge_model = "big", o.judge_prompt = "{question} ({solution}) said: {answer};";
  const Json row = {{"messages", Json::array({{{"role", "user"}, {"content", "2 + 2, {answer}?"}}})},
                    {"solution", "4"}};
  std::vector<std::string> texts(20, "5");
  texts[7] = "4";
  const auto scores = judged(o, texts, row);
  for (size_t i = 0; i < scores.size(); ++i) EXPECT_DOUBLE_EQ(scores[i], i == 7 ? 0.85 : 0.1) << i;
  ASSERT_EQ(asked.size(), 20u);
  EXPECT_EQ(asked[0].rfind("2 + 2, {answer}? (4) said: ", 0), 0u) << "braces in a question are no places to fill";
}

TEST(Judge, SaysWhatIsWrong) {
  const FakeJudge mute([](const Json&) { return std::pair(200, FakeJudge::says("I cannot say.")); });
  EXPECT_NE(fault(judged_at(mute.url())).find("says no number: 'I cannot say.'"), std::string::npos);
  const FakeJudge closed([](const Json&) { return std::pair(401, std::string("no key")); });
  EXPECT_NE(fault(judged_at(closed.url())).find("says 401: no key"), std::string::npos);
  const FakeJudge strange([](const Json&) { return std::pair(200, std::string("{}")); });
  EXPECT_NE(fault(judged_at(strange.url())).find("sent no choices[0].message.content"), std::string::npos);
  RewardOptions o = judged_at(closed.url());
  o.reward_failure = "skip";
  EXPECT_TRUE(std::isnan(judged(o, {"x"}, Json::object())[0]));
}

TEST(Judge, IsWaitedForSoLong) {
  std::atomic<int> asked{0};
  const FakeJudge slow([&](const Json&) {
    ++asked;
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    return std::pair(200, FakeJudge::says("1"));
  });
  RewardOptions o = judged_at(slow.url());
  o.reward_timeout = 0.2;
  EXPECT_NE(fault(o).find("did not answer within 0.2 s (--reward_timeout)"), std::string::npos);
}

TEST(Judge, IsTriedAgainWhenItIsBusy) {
  std::atomic<int> asked{0};
  const FakeJudge busy([&](const Json&) {
    return ++asked == 1 ? std::pair(503, std::string("busy")) : std::pair(200, FakeJudge::says("10"));
  });
  EXPECT_EQ(judged(judged_at(busy.url()), {"x"}, Json::object())[0], 1);
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace apus
