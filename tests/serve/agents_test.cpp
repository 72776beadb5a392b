// SPDX-License-Identifier: Apache-2.0
// Programs that ask the model themselves: their requests over a real socket become an episode's record.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/files.h"
#include "base/program.h"
#include "environment/episodes.h"
#include "serve/agent_turns.h"
#include "tests/folder.h"
#include "tests/refusal.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {

// Asks as OpenAI's clients do, with nothing but what Python brings.
constexpr const char* kAsks = R"(
import json, os, sys, urllib.request
row = json.load(sys.stdin)
def ask(messages, **more):
    body = json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": messages, **more}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body,
                                     {"Content-Type": "application/json",
                                      "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]
def user(text): return {"role": "user", "content": text}
)";

class Agents : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!program_on_path("python3")) GTEST_SKIP() << "python3 is not here";
  }
  EnvironmentOptions options(const std::string& program) {
    write_file_atomic(folder.path / "agent.py", kAsks + program);
    EnvironmentOptions o;
    o.environment = "agent:python3 " + (folder.path / "agent.py").string();
    o.environment_timeout = 30;
    return o;
  }
  // Two episodes, in which the model says these texts, one after the other.
  std::vector<Trajectory> played(const EnvironmentOptions& o, const std::vector<std::string>& says) {
    const Speech speech{{std::shared_ptr<void>(), &served.chat}, {served.end}};
    const auto environment = make_environment(o, nullptr, speech);
    const Json row = {{"number", 5}};
    std::map<size_t, size_t> turn;  // of each episode
    const auto model = [&](const std::vector<TurnAsked>& turns, const TurnSaid& said) {
      for (const TurnAsked& asked : turns) {
        FinishedAnswer one{.finish = Finish::Stop};
        for (const int32_t id : served.tokenizer->encode(says.at(turn[asked.episode]++)))
          one.tokens.push_back({.id = id, .logprob = -1});
        one.tokens.push_back({.id = served.end, .logprob = -1});
        said(asked.episode, one);
      }
    };
    const auto never = [](size_t, const EpisodeReply&) -> Heard { throw std::logic_error("not asked for"); };
    return play(*environment, {{0, &row, 1}, {1, &row, 2}}, {{{1}}, {{1}}}, {.temperature = 1, .max_new_tokens = 50},
                {.max_turns = 4, .max_new_tokens = 50},
                {.model = model, .question = never, .between = never, .tokenizer = *served.tokenizer});
  }
  std::string decoded(const std::vector<int32_t>& ids) const { return served.tokenizer->decode(ids, false); }
  test::Served served;
  test::Folder folder;
};

TEST_F(Agents, WhatIsAskedAndAnsweredIsTheRecord) {
  const auto o = options(R"(
talk = [user("guess 1 to 9")]
while len(talk) < 9:
    talk.append(ask(talk))
    if talk[-1]["content"] == str(row["number"]): break
    talk.append(user("higher"))
print("thinking aloud")
print(json.dumps({"reward": 1 / len(talk)}))
)");
  for (const Trajectory& t : played(o, {"3", "5"})) {
    EXPECT_EQ(decoded(t.prompt), "<|im_start|>user\nguess 1 to 9<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(decoded(t.ids), "3<|im_end|>\n<|im_start|>user\nhigher<|im_end|>\n<|im_start|>assistant\n5<|im_end|>");
    EXPECT_EQ(std::count(t.own.begin(), t.own.end(), 1), 4);
    EXPECT_EQ(t.turns.size(), 2u);
    EXPECT_DOUBLE_EQ(t.reward(), 0.25);
    EXPECT_FALSE(t.failed);
  }
}

TEST_F(Agents, ARewrittenHistoryIsAnotherConversation) {
  const auto o = options(R"(
first = ask([user("one")])["content"]
second = ask([user("two: " + first)], stream=False)
print(2)
)");
  for (const Trajectory& t : played(o, {"a", "b"})) {
    EXPECT_EQ(decoded(t.prompt), "<|im_start|>user\ntwo: a<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(decoded(t.ids), "b<|im_end|>");
    EXPECT_EQ(t.reward(), 2);
    ASSERT_EQ(t.beside.size(), 1u);
    EXPECT_EQ(decoded(t.beside[0].prompt), "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(decoded(t.beside[0].ids), "a<|im_end|>");
  }
}

// What was said before stands in the prompt of the second, and is learnt in the first alone.
TEST_F(Agents, AHistoryThatIsTakenBackBranches) {
  const auto o = options(R"(
talk = [user("one"), ask([user("one")])]
third = ask(talk + [user("two")])
other = ask(talk + [user("three")])
print(1)
)");
  for (const Trajectory& t : played(o, {"a", "b", "c"})) {
    EXPECT_EQ(decoded(t.prompt),
              "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"
              "<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(decoded(t.ids), "c<|im_end|>");
    ASSERT_EQ(t.beside.size(), 1u);
    EXPECT_EQ(decoded(t.beside[0].ids),
              "a<|im_end|>\n<|im_start|>user\ntwo<|im_end|>\n<|im_start|>assistant\nb<|im_end|>");
  }
}

TEST_F(Agents, SubAgentsTalkBeside) {
  const auto o = options(R"(
talk = [user("plan")]
talk.append(ask(talk))
helper = [user("do " + talk[-1]["content"])]
helper.append(ask(helper))
helper.append(user("sure?"))
talk.append(user("done: " + ask(helper)["content"]))
ask(talk)
print(0.5)
)");
  for (const Trajectory& t : played(o, {"a", "b", "c", "d"})) {
    EXPECT_EQ(decoded(t.ids), "a<|im_end|>\n<|im_start|>user\ndone: c<|im_end|>\n<|im_start|>assistant\nd<|im_end|>");
    ASSERT_EQ(t.beside.size(), 1u);
    EXPECT_EQ(decoded(t.beside[0].prompt), "<|im_start|>user\ndo a<|im_end|>\n<|im_start|>assistant\n");
    EXPECT_EQ(decoded(t.beside[0].ids),
              "b<|im_end|>\n<|im_start|>user\nsure?<|im_end|>\n<|im_start|>assistant\nc<|im_end|>");
    EXPECT_EQ(t.turns_taken(), 4u);
    EXPECT_EQ(t.reward(), 0.5);
  }
}

// Each answer goes to who asked for it, also where two ask at the same time and one of them leaves.
TEST_F(Agents, SubAgentsMayAskAtTheSameTime) {
  const auto o = options(R"(
from concurrent.futures import ThreadPoolExecutor
said = list(ThreadPoolExecutor(3).map(lambda n: ask([user("part %d" % n)])["content"], range(3)))
print(len(set(said)))
)");
  for (const Trajectory& t : played(o, {"a", "b", "c"})) {
    EXPECT_EQ(t.beside.size(), 2u);
    EXPECT_EQ(t.reward(), 3);
  }
}

TEST_F(Agents, FailuresAreNamed) {
  const auto why = [&](const std::string& program, double seconds = 30) {
    EnvironmentOptions o = options(program);
    o.environment_timeout = seconds;
    return test::refusal(Fault::Data, [&] { played(o, {"a", "b", "c"}); });
  };
  test::expect_says(why("ask([user('x')])\nsys.exit('no more')\n"), "ended with code 1; it said: no more");
  test::expect_says(why("print(1)"), "before it asked anything");
  test::expect_says(why("import time\ntime.sleep(60)\n", 0.5), "--environment_timeout");
  test::expect_says(why("ask([user('x')])\nprint('well done')\n"), "well done");
  EnvironmentOptions o = options("ask([user('x')])\nsys.exit(3)\n");
  o.environment_failure = "skip";
  for (const Trajectory& t : played(o, {"a"})) EXPECT_TRUE(t.failed);
}

TEST_F(Agents, WhatCannotBeAskedIsRefused) {
  const auto o = options(R"(
import urllib.error
try:
    ask([user("x")], response_format={"type": "json_object"})
except urllib.error.HTTPError as error:
    said = json.load(error)["error"]["message"]
ask([user(said)])
print(1 if "in its own words" in said else 0)
)");
  for (const Trajectory& t : played(o, {"a"})) EXPECT_EQ(t.reward(), 1);
}

TEST(AgentTurns, WhatStandsBehindAnAnswer) {
  test::Served served;
  const auto ids = [&](const std::string& text) { return served.tokenizer->encode(text); };
  const std::vector<int32_t> asked = ids("<|im_start|>assistant\n"), said = ids("{\"a\": 1}<|im_end|>");
  const auto behind = [&](const std::string& asks) {
    const auto next = behind_agents_turn(asked, said, ids(asks), {served.end}, *served.tokenizer);
    return next ? served.tokenizer->decode(*next, false) : "(none)";
  };
  EXPECT_EQ(behind("<|im_start|>assistant\n{\"a\": 1}<|im_end|>\nso"), "\nso");
  EXPECT_EQ(behind("<|im_start|>assistant\n{\"a\":1}<|im_end|>\nso"), "\nso") << "its blanks may differ";
  EXPECT_EQ(behind("<|im_start|>assistant\n{\"a\": 2}<|im_end|>\nso"), "(none)");
  EXPECT_EQ(behind("<|im_start|>user\nhm"), "(none)");
  EXPECT_EQ(behind("<|im_start|>assistant\n"), "(none)");
}

TEST(AgentTurns, RewardsAsPrinted) {
  EXPECT_EQ(reward_printed(""), 0);
  EXPECT_EQ(reward_printed("hello\n0.5\n\n"), 0.5);
  EXPECT_EQ(reward_printed("{\"reward\": 2}"), 2);
  EXPECT_EQ(reward_printed("true"), 1);
  EXPECT_EQ(reward_printed("{\"done\": true}"), 0);
  for (const char* wrong : {"good", "[1]", "{\"reward\": \"high\"}", "1e999"})
    EXPECT_THROW(reward_printed(wrong), Error) << wrong;
}

}  // namespace
}  // namespace apus
