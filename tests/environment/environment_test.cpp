// SPDX-License-Identifier: Apache-2.0
// What environments reply, those written here and programs, and what they are told when they cannot be used.
#include "environment/environment.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>

#include "base/clock.h"
#include "base/error.h"
#include "environment/called_tools.h"
#include "tests/folder.h"

namespace apus {
namespace {

EnvironmentOptions environment_named(const std::string& name) {
  EnvironmentOptions o;
  o.environment = name;
  return o;
}

struct OneEpisode {
  OneEpisode(const EnvironmentOptions& options, const Json& row, uint64_t seed = 3)
      : environment(make_environment(options)) {
    first = environment->reset({{.episode = 5, .row = &row, .seed = seed}}).at(0);
  }
  explicit OneEpisode(const std::string& name, const Json& row) : OneEpisode(environment_named(name), row) {}
  EpisodeReply says(const std::string& text) {
    return environment->step({{.episode = 5, .turn = turn++, .text = text, .tokens = {1, 2}}}).at(0);
  }
  std::string hears(const std::string& text) {
    const EpisodeReply reply = says(text);
    return reply.messages.empty() ? "" : reply.messages.back()["content"].get<std::string>();
  }
  std::unique_ptr<Environment> environment;
  EpisodeReply first;
  int64_t turn = 0;
};

TEST(GuessNumber, TellsHigherAndLower) {
  OneEpisode game("guess_number", {{"low", 1}, {"high", 9}, {"number", 6}});
  EXPECT_EQ(game.hears("I guess 3"), "higher");
  EXPECT_EQ(game.hears("8"), "lower");
  EXPECT_EQ(game.hears("no idea"), "Say a number from 1 to 9.");
  EXPECT_EQ(game.hears("not 3 but -4"), "higher");
  const EpisodeReply found = game.says("then 6!");
  EXPECT_TRUE(found.done);
  EXPECT_EQ(found.reward, 1);
}

TEST(GuessNumber, IsTheSameForTheSameSeed) {
  const Json row = {{"low", 1}, {"high", 1000}};
  const auto number = [&](uint64_t seed) {
    OneEpisode game(environment_named("guess_number"), row, seed);
    int64_t low = 1, high = 1000;
    while (true) {
      const int64_t guess = (low + high) / 2;
      const EpisodeReply reply = game.says(std::to_string(guess));
      if (reply.done) return guess;
      (reply.messages[0]["content"] == "higher" ? low = guess + 1 : high = guess - 1);
    }
  };
  EXPECT_EQ(number(4), number(4));
  EXPECT_NE(number(4), number(5));
  EXPECT_THROW(OneEpisode("guess_number", {{"low", 5}, {"high", 2}}), Error);
  EXPECT_THROW(OneEpisode("guess_number", {{"low", "five"}}), Error);
}

TEST(SecondTry, IsWorthHalf) {
  const Json row = {{"solution", "#### 42"}};
  OneEpisode first("second_try", row), second("second_try", row), never("second_try", row);
  EXPECT_EQ(first.says("\\boxed{42}").reward, 1);
  EXPECT_NE(second.hears("\\boxed{41}").find("not right"), std::string::npos);
  const EpisodeReply right = second.says("\\boxed{42}");
  EXPECT_EQ(right.reward, 0.5);
  EXPECT_TRUE(right.done);
  never.says("1");
  EXPECT_TRUE(never.says("2").done);
  EXPECT_THROW(OneEpisode("second_try", Json::object()), Error);
}

TEST(Calculator, IsCalledAndThenAnswered) {
  OneEpisode of("calculator", {{"solution", "84"}});
  EXPECT_EQ(
      of.hears("<tool_call>\n{\"name\": \"calculator\", \"arguments\": {\"expression\": \"(3+4)*12\"}}\n</tool_call>"),
      "84");
  EXPECT_EQ(of.hears("<tool_call>{\"name\": \"calculator\", \"arguments\": {\"expression\": \"1/3\"}}</tool_call>"),
            "0.333333333333");
  EXPECT_NE(of.hears("<tool_call>{\"name\": \"calculator\", \"arguments\": {\"expression\": \"x+1\"}}</tool_call>")
                .find("error"),
            std::string::npos);
  EXPECT_NE(of.hears("<tool_call>{\"name\": \"calculator\", \"arguments\": {\"expr\": \"1\"}}</tool_call>")
                .find("'expression' is missing"),
            std::string::npos);
  EXPECT_NE(of.hears("<tool_call>{\"name\": \"shell\", \"arguments\": {}}</tool_call>").find("no tool 'shell'"),
            std::string::npos);
  const EpisodeReply answer = of.says("It is 84.");
  EXPECT_TRUE(answer.done);
  EXPECT_EQ(answer.reward, 1);
  EXPECT_EQ(make_environment(environment_named("calculator"))->tools()[0]["function"]["name"], "calculator");
}

TEST(Tools, AreCheckedByTheirSchema) {
  const Json row = Json::parse(R"({
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["C", "F"]}},
      "required": ["city"]}}}],
    "calls": [{"name": "weather", "arguments": {"city": "Bern", "days": 2}, "result": "rain"},
              {"name": "weather", "arguments": {"city": "Rome"}}]})");
  OneEpisode of("tools", row);
  const auto call = [](const std::string& arguments) {
    return "<tool_call>{\"name\": \"weather\", \"arguments\": " + arguments + "}</tool_call>";
  };
  EXPECT_NE(of.hears(call("{\"days\": 2}")).find("'city' is missing"), std::string::npos);
  EXPECT_NE(of.hears(call("{\"city\": \"Bern\", \"days\": \"two\"}")).find("no integer"), std::string::npos);
  EXPECT_NE(of.hears(call("{\"city\": \"Bern\", \"unit\": \"K\"}")).find("none of"), std::string::npos);
  EXPECT_EQ(of.hears(call("{\"city\": \"Oslo\"}")), "no result");
  EpisodeReply reply = of.says(call("{\"days\": 2, \"city\": \"Bern\"}"));
  EXPECT_EQ(reply.reward, 0.5);
  EXPECT_EQ(reply.messages[0]["content"], "rain");
  EXPECT_FALSE(reply.done);
  EXPECT_EQ(of.says(call("{\"days\": 2, \"city\": \"Bern\"}")).reward, 0) << "each call counts once";
  reply = of.says(call("{\"city\": \"Rome\"}"));
  EXPECT_EQ(reply.reward, 0.5);
  EXPECT_TRUE(reply.done);
}

TEST(Environment, ThatIsNotKnownIsRefused) {
  const auto fault = [](const std::string& name) -> std::string {
    try {
      environment_named(name).check();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(fault("sudoku").find("guess_number"), std::string::npos);
  EXPECT_NE(fault("sudoku").find("external:python3 sudoku.py"), std::string::npos);
  EXPECT_NE(fault("external:").find("names no program"), std::string::npos);
  EXPECT_EQ(fault("external:./maze.py"), "");
  EXPECT_EQ(fault("http://localhost:8000"), "");
  EnvironmentOptions o;
  o.multi_turn_scheduler = "math_tip_trick";
  EXPECT_EQ(o.environment_name(), "second_try");
  o.multi_turn_scheduler = "gym_scheduler";
  EXPECT_THROW(o.check(), Error) << "which one?";
  o.environment = "calculator";
  o.check();
  EXPECT_EQ(o.environment_name(), "calculator");
}

// Programs.
class EnvironmentProgram : public ::testing::Test {
 protected:
  EnvironmentOptions runs(const std::string& python) {
    std::ofstream(folder.path / "program.py") << python;
    EnvironmentOptions o = environment_named("external:exec python3 " + (folder.path / "program.py").string());
    o.environment_timeout = 5;
    return o;
  }
  std::string fault(const EnvironmentOptions& o) {
    try {
      OneEpisode episode(o, row);
      episode.says("hello");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  test::Folder folder;
  Json row = {{"solution", "x"}};
};

constexpr const char* kEcho = R"(
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "close": continue
    if asked["op"] == "reset": reply = {"observation": "begin " + asked["row"]["solution"]}
    else: reply = {"observation": [{"role": "tool", "content": asked["completion"].upper()}],
                   "reward": asked["turn"] + 0.5, "done": asked["completion"] == "end"}
    print(json.dumps({"id": asked["id"], **reply}), flush=True)
)";

TEST_F(EnvironmentProgram, IsTalkedToLineByLine) {
  OneEpisode episode(runs(kEcho), row);
  EXPECT_EQ(episode.first.messages, user_says("begin x"));
  EpisodeReply reply = episode.says("hello");
  EXPECT_EQ(reply.messages[0]["content"], "HELLO");
  EXPECT_EQ(reply.reward, 0.5);
  EXPECT_FALSE(reply.done);
  reply = episode.says("end");
  EXPECT_EQ(reply.reward, 1.5);
  EXPECT_TRUE(reply.done);
  episode.environment->close();
  EXPECT_EQ(episode.environment->reset({{.episode = 9, .row = &row}}).at(0).messages, user_says("begin x"))
      << "it goes on in the next round";
}

// It holds its reply to one episode back until another one has ended.
TEST_F(EnvironmentProgram, IsAskedWhileOthersWaitForItsReply) {
  OneEpisode slow(runs(R"(
import json, sys
held = []
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "close": continue
    reply = json.dumps({"id": asked["id"], "observation": str(len(held)), "done": asked.get("completion") == "end"})
    if asked.get("completion") == "wait": held.append(reply)
    else: print(reply, flush=True)
    if asked.get("completion") == "end":
        for reply in held: print(reply, flush=True)
)"),
                  row);
  auto waits = std::async(std::launch::async, [&] { return slow.says("wait"); });
  slow.environment->reset({{.episode = 6, .row = &row}});
  const auto says = [&](const char* text) {
    return slow.environment->step({{.episode = 6, .text = text, .tokens = {1}}}).at(0).messages;
  };
  while (says("is it waiting?") != user_says("1")) continue;
  EXPECT_EQ(says("and now?"), user_says("1"));
  says("end");
  EXPECT_EQ(waits.get().messages, user_says("0"));
}

TEST_F(EnvironmentProgram, ThatFailsIsNamed) {
  EXPECT_NE(fault(runs("import sys\nsys.exit('no licence')")).find("no licence"), std::string::npos);
  EXPECT_NE(fault(runs("import sys\nsys.exit(3)")).find("ended with code 3"), std::string::npos);
  EXPECT_NE(fault(runs("print('hello', flush=True)\nimport time\ntime.sleep(60)")).find("hello"), std::string::npos);
  const std::string wrong = fault(runs(R"(
import json, sys
for line in sys.stdin: print(json.dumps({"id": json.loads(line)["id"], "reward": "much"}), flush=True)
)"));
  EXPECT_NE(wrong.find("'reward' is"), std::string::npos) << wrong;
  const std::string other = fault(runs(R"(
import sys
for line in sys.stdin: print('{"id": 77}', flush=True)
)"));
  EXPECT_NE(other.find("77 was not asked for"), std::string::npos) << other;
}

TEST_F(EnvironmentProgram, ThatHangsOrFloodsIsBounded) {
  EnvironmentOptions hangs = runs("import time\ntime.sleep(60)");
  hangs.environment_timeout = 0.5;
  const Stopwatch watch;
  EXPECT_NE(fault(hangs).find("--environment_timeout"), std::string::npos);
  EXPECT_LT(watch.seconds(), 5);
  EXPECT_NE(fault(runs("import sys\nwhile True: sys.stdout.write('x' * 65536)")).find("more than"), std::string::npos);
}

TEST_F(EnvironmentProgram, MayBePassedOver) {
  EnvironmentOptions o = runs("import sys\nsys.exit(3)");
  o.environment_failure = "skip";
  OneEpisode episode(o, row);
  EXPECT_NE(episode.first.failure.find("ended with code 3"), std::string::npos);
  EXPECT_TRUE(episode.first.done);
  EXPECT_NE(episode.says("on").failure.find("ended with code 3"), std::string::npos) << "a new one would not know it";
  episode.environment->close();
  std::ofstream(folder.path / "program.py") << kEcho;
  EXPECT_EQ(episode.environment->reset({{.episode = 9, .row = &row}}).at(0).messages, user_says("begin x"))
      << "it is started anew for the next round";
}

TEST(EpisodeReply, IsReadInSeveralForms) {
  const auto content = [](const char* text) {
    return read_reply(Json::parse(text), "it").messages.at(0).at("content").get<std::string>();
  };
  EXPECT_EQ(content(R"({"observation": "a"})"), "a");
  EXPECT_EQ(content(R"({"observation": {"text": "b"}})"), "b");
  EXPECT_EQ(content(R"({"observation": {"messages": [{"role": "tool", "content": "c"}]}, "reward": null})"), "c");
  EXPECT_EQ(read_reply(Json::parse(R"({"observation_ids": [1, 2]})"), "it").tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(read_reply(Json::parse(R"({"observation": "<image>", "images": ["a.png"]})"), "it").images,
            Json({"a.png"}));
  EXPECT_EQ(read_reply(Json::parse(R"({"observation": "look", "image": "a.png"})"), "it").images, Json({"a.png"}));
  for (const char* bad : {R"([1])", R"({"observation": 3})", R"({"observation": [{"role": "user"}]})",
                          R"({"images": ["a.png"]})", R"({"observation": "a", "images": [1]})",
                          R"({"observation_ids": [-1]})", R"({"done": 1})", R"({"reward": "x"})"})
    EXPECT_THROW(read_reply(Json::parse(bad), "it"), Error) << bad;
}

}  // namespace
}  // namespace apus
