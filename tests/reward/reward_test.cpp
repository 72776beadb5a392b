// SPDX-License-Identifier: Apache-2.0
// Rewards of form, length and programs, and how several are added.
#include "reward/reward.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "tests/folder.h"

namespace apus {
namespace {

std::vector<RewardInput> said(const std::vector<std::string>& texts, const Json* row = nullptr) {
  std::vector<RewardInput> out;
  for (const std::string& text : texts)
    out.push_back({.completion = text, .tokens = {1, 2, 3}, .cut = false, .row = row});
  return out;
}

double one(const std::string& name, const std::string& text, RewardOptions o = {}, size_t tokens = 3,
           const Json* row = nullptr) {
  o.reward_funcs = {name};
  return Rewards(o)
      .score({{.completion = text, .tokens = std::vector<int32_t>(tokens, 7), .cut = false, .row = row}})
      .totals[0];
}

TEST(Reward, OfTheForm) {
  EXPECT_EQ(one("format", "<think>a\nb</think>\n<answer>c</answer>"), 1);
  EXPECT_EQ(one("format", "<think>a</think> b </think><answer>c</answer>"), 1);
  EXPECT_EQ(one("format", " <think>a</think><answer>c</answer>"), 0);
  EXPECT_EQ(one("format", "<think>a</think><answer>c</answer> d"), 0);
  EXPECT_EQ(one("format", "<think>a</think>c"), 0);
  EXPECT_EQ(one("format", "<answer>c</answer>"), 0);
  EXPECT_EQ(one("react_format", "<think>a</think> Action: f Action Input: {}"), 1);
  EXPECT_EQ(one("react_format", "<think>a</think> Action: f"), 0);
}

TEST(Reward, OfBoxesByWhatTheyShare) {
  const auto iou = [](const std::string& text, const std::string& solution) {
    const Json row = {{"solution", solution}};
    return one("iou", text, {}, 3, &row);
  };
  EXPECT_EQ(iou("[0, 0, 10, 10]", "(0,0),(10,10)"), 1);
  EXPECT_NEAR(iou("It is at <|box_start|>(5,0),(15,10)<|box_end|>.", "[0, 0, 10, 10]"), 1.0 / 3, 1e-12);
  EXPECT_EQ(iou("[0, 0, 10, 10] or [0, 0, 10, 10]", "[0, 0, 10, 10]"), 0.5);  // one guess too many
  EXPECT_EQ(iou("[[0,0,10,10],[20,0,30,10]]", R"([{"bbox_2d": [20, 0, 30, 10]}, {"bbox_2d": [0, 0, 10, 10]}])"), 1);
  EXPECT_EQ(iou("nowhere", "[0, 0, 10, 10]"), 0);
  EXPECT_EQ(iou("[0, 0, 0, 0]", "[0, 0, 10, 10]"), 0);
  EXPECT_EQ(iou("[10, 10, 0, 0]", "[0, 0, 10, 10]"), 1);      // corners in any order
  EXPECT_EQ(iou("[0, 0, 10, 10]", "not in the picture"), 0);  // no opinion counts nothing
  EXPECT_THROW(one("iou", "[0, 0, 1, 1]"), Error);
}

TEST(Reward, OfLettersThatWereRead) {
  const auto anls = [](const std::string& text, const Json& solution) {
    const Json row = {{"solution", solution}};
    return one("anls", text, {}, 3, &row);
  };
  EXPECT_EQ(anls(" Total: 12 ", "total: 12"), 1);
  EXPECT_NEAR(anls("1Z.50", "12.50"), 0.8, 1e-12);
  EXPECT_EQ(anls("abcd", "abxy"), 0);                        // half of it is wrong
  EXPECT_NEAR(anls("caf\u00e9s", "CAF\u00c9"), 0.8, 1e-12);  // letters, not bytes
  EXPECT_EQ(anls("second", Json::array({"first", "Second"})), 1);
  EXPECT_EQ(anls("\xff\xfe", "a"), 0);
  EXPECT_EQ(anls("", ""), 1);
}

// OVL.
TEST(Reward, OfALengthNearItsEnd) {
  RewardOptions o;
  o.soft_max_length = 120, o.soft_cache_length = 20;
  const std::map<size_t, double> expected = {{90, 0}, {100, 0}, {110, -0.5}, {120, -1}, {128, -1.4}};
  for (const auto& [tokens, reward] : expected)
    EXPECT_NEAR(one("soft_overlong", "", o, tokens), reward, 1e-12) << tokens;
  o.max_completion_length = 200;
  EXPECT_NEAR(one("length", "", o, 50), 0.25, 1e-12);
}

TEST(Reward, OfRepetition) {
  EXPECT_EQ(one("repetition", "a b"), 0);
  EXPECT_EQ(one("repetition", ""), 0);
  EXPECT_EQ(one("repetition", "a b c d e"), 0);
  EXPECT_NEAR(one("repetition", "A b c a B c a b c"), -(1 - 3.0 / 7), 1e-12);
}

TEST(Reward, OfAccuracyAndHowLongItTook) {
  const Json row = {{"solution", "#### 42"}};
  EXPECT_EQ(one("accuracy", "it is \\boxed{42}", {}, 3, &row), 1);
  EXPECT_EQ(one("accuracy", "it is \\boxed{41}", {}, 3, &row), 0);
  RewardOptions o;
  o.cosine_max_len = 100;
  EXPECT_NEAR(one("cosine", "42", o, 0, &row), 1, 1e-12);
  EXPECT_NEAR(one("cosine", "42", o, 50, &row), 0.75, 1e-12);
  EXPECT_NEAR(one("cosine", "42", o, 100, &row), 0.5, 1e-12);
  EXPECT_NEAR(one("cosine", "42", o, 300, &row), 0.5, 1e-12);
  EXPECT_NEAR(one("cosine", "41", o, 0, &row), -0.5, 1e-12);
  EXPECT_NEAR(one("cosine", "41", o, 100, &row), 0, 1e-12);
  const Json other = {{"result", 42}};
  EXPECT_THROW(one("accuracy", "42", {}, 3, &other), Error);
}

TEST(Reward, OfACallOfATool) {
  const auto worth = [](const std::string& said, const std::string& wanted) {
    const Json row = {{"solution", wanted}};
    return one("toolbench", said, {}, 3, &row);
  };
  const std::string wanted = "Action: weather\nAction Input: {\"city\": \"Bern\", \"days\": 2}";
  EXPECT_EQ(
      worth("<think>Action: no</think> Action: weather\nAction Input: {\"days\": 2, \"city\": \"Bern\"}\nObservation:",
            wanted),
      1);
  EXPECT_EQ(worth("Action: weather\nAction Input: {\"city\": \"Bern\"}", wanted), 0);
  EXPECT_EQ(worth("Action: wether\nAction Input: {\"city\": \"Bern\", \"days\": 2}", wanted), 0);
  EXPECT_EQ(worth("Action: weather\nAction Input: Bern", wanted), 0) << "JSON against words";
  EXPECT_EQ(worth("Bern", wanted), 0);
  EXPECT_EQ(worth("none", "the sun shines"), 1) << "no call on both sides";
  EXPECT_EQ(worth("Action: say\nAction Input: the sun shines in Bern", "Action: say\nAction Input: the sun is in Bern"),
            1);
  EXPECT_EQ(worth("Action: say\nAction Input: a b c d e", "Action: say\nAction Input: v w x y e"), 1) << "0.2 and more";
  EXPECT_EQ(worth("Action: say\nAction Input: a b c d f", "Action: say\nAction Input: v w x y e"), 0);
}

TEST(Reward, OfSeveralFunctionsIsWeighed) {
  RewardOptions o;
  o.reward_funcs = {"format", "length"}, o.reward_weights = {2, -1}, o.max_completion_length = 10;
  const auto scores = Rewards(o).score(said({"<think></think><answer></answer>", "no"}));
  EXPECT_NEAR(scores.totals[0], 2 - 0.3, 1e-12);
  EXPECT_NEAR(scores.totals[1], -0.3, 1e-12);
  EXPECT_EQ(scores.functions[0], (std::vector<double>{1, 0}));
}

TEST(Reward, OfManyAnswersKeepsTheirOrder) {
  RewardOptions o;
  o.reward_funcs = {"accuracy"};
  const Json row = {{"solution", "7"}};
  std::vector<std::string> texts;
  for (int i = 0; i < 500; ++i) texts.push_back(std::to_string(i % 10));
  const auto totals = Rewards(o).score(said(texts, &row)).totals;
  for (size_t i = 0; i < 500; ++i) EXPECT_EQ(totals[i], i % 10 == 7) << i;
}

// ---- programs

std::vector<double> told(const std::string& program, const std::vector<std::string>& texts, RewardOptions o = {}) {
  o.reward_funcs = {"external:" + program};
  const Json row = {{"solution", "x"}};
  return Rewards(o).score(said(texts, &row)).functions[0];
}

std::string refusal_of(const std::string& program, RewardOptions o = {}) {
  try {
    told(program, {"a", "b"}, o);
  } catch (const Error& error) {
    EXPECT_EQ(error.at.fault, Fault::Data);
    return error.what();
  }
  return "";
}

TEST(RewardProgram, IsGivenRowsAndGivesNumbers) {
  const auto rewards = told(
      "while read -r line; do case \"$line\" in *'\"completion\":\"good\"'*) echo 1;; *) echo "
      "'{\"reward\": 0.25}';; esac; done",
      {"good", "bad", "good"});
  EXPECT_EQ(rewards, (std::vector<double>{1, 0.25, 1}));
  EXPECT_TRUE(std::isnan(told("cat > /dev/null; echo null; echo true", {"a", "b"})[0]));
  test::Folder folder;
  told("cat > " + (folder.path / "seen").string() + "; echo 1", {"a \"quoted\"\nline"});
  const Json seen = parse_json(read_file(folder.path / "seen"), "seen");
  EXPECT_EQ(seen["completion"], "a \"quoted\"\nline");
  EXPECT_EQ(seen["solution"], "x");
  EXPECT_EQ(seen["completion_ids"], Json::array({1, 2, 3}));
}

TEST(RewardProgram, MayAnswerWhileItReadsMuch) {
  const std::vector<std::string> texts(100, std::string(10000, 'x'));
  EXPECT_EQ(told("while read -r line; do echo ${#line}; done", texts).size(), 100u);
  EXPECT_EQ(told("yes 1 | head -n 100", texts).size(), 100u) << "it need not read";
}

TEST(RewardProgram, ThatFailsIsNamed) {
  EXPECT_NE(refusal_of("echo what is this >&2; exit 3").find("ended with code 3; it said: what is this"),
            std::string::npos);
  EXPECT_NE(refusal_of("kill -9 $$").find("was ended by signal 9"), std::string::npos);
  EXPECT_NE(refusal_of("echo 1").find("printed 1 rewards for 2 answers"), std::string::npos);
  EXPECT_NE(refusal_of("echo 1; echo hello").find("line 2"), std::string::npos);
  EXPECT_NE(refusal_of("echo 1; echo '[1]'").find("is no reward"), std::string::npos);
  EXPECT_NE(refusal_of("echo 1; echo '\"1\"'").find("is no reward"), std::string::npos);
  EXPECT_NE(refusal_of("yes").find("prints more than"), std::string::npos);
  EXPECT_NE(refusal_of("./no-such-program").find("no-such-program"), std::string::npos);
}

TEST(RewardProgram, ThatHangsIsEndedWithItsChildren) {
  RewardOptions o;
  o.reward_timeout = 0.3;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(refusal_of("sleep 100 & sleep 100", o).find("was not done with 2 answers after 0.3 s"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  o.reward_failure = "skip";
  const auto skipped = told("sleep 100", {"a", "b"}, o);
  EXPECT_TRUE(std::isnan(skipped[0]) && std::isnan(skipped[1]));
}

TEST(RewardProgram, IsCalledByItsFile) {
  RewardOptions o;
  o.reward_funcs = {"external:python3 /a/b.c/reward.py --strict", "external:./judge", "external:judge -x", "format"};
  EXPECT_EQ(Rewards(o).names(), (std::vector<std::string>{"reward.py", "judge", "judge#2", "format"}));
}

TEST(RewardOptions, AreChecked) {
  const auto fault = [](const std::function<void(RewardOptions&)>& change) {
    RewardOptions o;
    change(o);
    try {
      o.check();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(fault([](auto& o) { o.reward_funcs = {"acuracy"}; }).find("accuracy"), std::string::npos);
  EXPECT_NE(fault([](auto& o) { o.reward_funcs = {"external:"}; }).find("names no program"), std::string::npos);
  EXPECT_NE(fault([](auto& o) {
              o.reward_funcs = {"format"}, o.reward_weights = {1, 2};
            }).find("2 factors for 1"),
            std::string::npos);
  EXPECT_NE(fault([](auto& o) { o.reward_funcs = {"soft_overlong"}; }).find("--soft_cache_length"), std::string::npos);
  EXPECT_NE(fault([](auto& o) { o.soft_max_length = 10, o.soft_cache_length = 10; }).find("below"), std::string::npos);
  EXPECT_EQ(fault([](auto& o) { o.reward_funcs = {"external:cat", "cosine"}; }), "");
}

}  // namespace
}  // namespace apus
