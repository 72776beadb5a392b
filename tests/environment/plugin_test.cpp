// SPDX-License-Identifier: Apache-2.0
// Schedulers of turns and gym environments of ms-swift's plugins, as an environment; and what cannot be one.
#include "environment/plugin.h"

#include "environment/episodes.h"
#include "tests/paths.h"
#include "tests/refusal.h"
#include "tests/reward/plugin.h"

namespace apus {
namespace {

using test::expect_says;
using test::refusal;

constexpr const char* kSchedulers = R"(
from swift.rollout.gym_env import Env, envs
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns

class Count(Env):
    async def reset(self, config):
        self.left = config.data_dict['steps']
        return f'{self.left} to go', {}, 'You count.'
    async def step(self, action):
        assert action[-1]['role'] == 'assistant'
        self.left -= 1
        return f'{self.left} to go', 0.5, self.left == 0, {}
    async def close(self):
        pass
envs['count'] = Count

class Again(MultiTurnScheduler):
    def check_finished(self, infer_request, response_choice, current_turn):
        return 'end' in response_choice.message.content or super().check_finished(
            infer_request, response_choice, current_turn)
    def step(self, infer_request, response_choice, current_turn):
        said = [m['content'] for m in infer_request.messages if m['role'] == 'assistant']
        infer_request.messages.append({'role': 'user', 'content': f"{current_turn}: {','.join(said)}"})
        return {'infer_request': infer_request}
multi_turns['again'] = Again

class Tool(MultiTurnScheduler):
    def step(self, infer_request, response_choice, current_turn):
        result = ' = 4;'
        infer_request.messages[-1]['content'] += result
        ids = response_choice.token_ids
        new = self.tokenizer.encode(result, add_special_tokens=False)
        mask = [1] * len(ids) + [0] * len(new)
        ids.extend(new)
        return {'infer_request': infer_request, 'response_token_ids': ids, 'response_loss_mask': mask}
multi_turns['tool'] = Tool

class Alone(MultiTurnScheduler):
    async def run(self, infer_request, request_config, **kwargs):
        return None
class Rewrites(MultiTurnScheduler):
    def step(self, infer_request, response_choice, current_turn):
        infer_request.messages[-1]['content'] = 'something else'
        return {'infer_request': infer_request}
class Sees(MultiTurnScheduler):
    def step(self, infer_request, response_choice, current_turn):
        infer_request.messages.append({'role': 'user', 'content': '<image>'})
        return {'infer_request': infer_request, 'rollout_infos': {'images': ['a.png']}}
class Breaks(MultiTurnScheduler):
    def step(self, infer_request, response_choice, current_turn):
        return {}['infer_request']
multi_turns.update(alone=Alone, rewrites=Rewrites, sees=Sees, breaks=Breaks)
)";

class PluginEpisodes : public test::PluginTest {
 protected:
  EnvironmentOptions of(const std::string& scheduler) {
    EnvironmentOptions o;
    static_cast<PluginOptions&>(o) = written(kSchedulers);
    o.multi_turn_scheduler = scheduler, o.max_turns = 3;
    return o;
  }
  std::unique_ptr<Environment> made(const EnvironmentOptions& o) {
    o.check();
    return make_environment(o, plugins_of(o, Json::object(), tokenizer));
  }
  static EpisodeReply says(Environment& environment, const std::string& text, int64_t turn, bool cut = false) {
    return environment.step({{.episode = 5, .turn = turn, .text = text, .tokens = {1, 2}, .cut = cut}}).at(0);
  }
  std::string fault(const std::string& scheduler) {
    const auto environment = made(of(scheduler));
    environment->reset({{.episode = 5, .row = &row}});
    return refusal(Fault::Data, [&] { says(*environment, "hello", 0); });
  }
  const Json row = {{"messages", {{{"role", "user"}, {"content", "count"}}}}, {"steps", 2}};
  const std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(test::source_dir() / "assets/tokenizer");
};

TEST_F(PluginEpisodes, OfAGymEnvironment) {
  EnvironmentOptions o = of("gym_scheduler");
  o.environment = "count", o.use_gym_env = true;
  const auto environment = made(o);
  const Json longer = {{"messages", row["messages"]}, {"steps", 3}};
  const auto begun = environment->reset({{.episode = 5, .row = &row}, {.episode = 6, .row = &longer}});
  EXPECT_EQ(begun[0].messages.at(0).at("content"), "You count.");
  EXPECT_EQ(begun[1].messages.at(1).at("content"), "3 to go");
  EpisodeReply reply = says(*environment, "one", 0);
  EXPECT_EQ(reply.messages, user_says("1 to go"));
  EXPECT_EQ(reply.reward, 0.5);
  EXPECT_FALSE(reply.done);
  reply = says(*environment, "two", 1);
  EXPECT_EQ(reply.reward, 0.5);
  EXPECT_TRUE(reply.done);
  environment->close();
  EXPECT_EQ(environment->reset({{.episode = 5, .row = &row}}).at(0).messages.size(), 2u) << "the next round";
}

TEST_F(PluginEpisodes, OfASchedulerThatAddsMessages) {
  const auto environment = made(of("again"));
  EXPECT_TRUE(environment->reset({{.episode = 5, .row = &row}}).at(0).messages.empty()) << "the row's own";
  EXPECT_EQ(says(*environment, "a", 0).messages, user_says("1: a"));
  EXPECT_EQ(says(*environment, "b", 1).messages, user_says("2: a,b"));
  EXPECT_TRUE(says(*environment, "c", 2).done) << "--max_turns 3";
  environment->reset({{.episode = 5, .row = &row}});
  EXPECT_TRUE(says(*environment, "the end", 0).done);
  environment->reset({{.episode = 5, .row = &row}});
  EXPECT_TRUE(says(*environment, "a", 0, true).done) << "cut by its length";
}

// The model's message goes on behind what the tool says: the token that ended it is taken back.
TEST_F(PluginEpisodes, OfASchedulerThatGoesOnInTheMessage) {
  const auto environment = made(of("tool"));
  const std::vector<int32_t> words = tokenizer->encode("2 + 2"), result = tokenizer->encode(" = 4;");
  const int32_t stop = tokenizer->eos().value_or(2);
  std::vector<std::vector<int32_t>> read;
  const auto model = [&](const std::vector<TurnAsked>& turns, const TurnSaid& answered) {
    read.push_back(turns.at(0).text.ids);
    FinishedAnswer said;
    for (const int32_t id : words) said.tokens.push_back({.id = id, .logprob = -1});
    said.tokens.push_back({.id = stop, .logprob = -1}), said.finish = Finish::Stop;
    answered(0, said);
  };
  const auto none = [](size_t, const EpisodeReply&) { return Heard(); };
  const Trajectory t = play(*environment, {{.episode = 0, .row = &row}}, {{{7}}}, {}, {.max_turns = 2},
                            {.model = model, .question = none, .between = none, .tokenizer = *tokenizer})
                           .at(0);
  std::vector<int32_t> expected = words;
  expected.insert(expected.end(), result.begin(), result.end());
  EXPECT_EQ(std::vector<int32_t>(read.at(1).begin() + 1, read.at(1).end()), expected);
  expected.insert(expected.end(), words.begin(), words.end()), expected.push_back(stop);
  EXPECT_EQ(t.ids, expected);
  std::vector<uint8_t> own(words.size(), 1);
  own.resize(words.size() + result.size(), 0), own.resize(t.ids.size(), 1);
  EXPECT_EQ(t.own, own);
  EXPECT_EQ(t.turns.at(0).end, words.size());
  EXPECT_EQ(t.messages, Json::array({{{"role", "assistant"}, {"content", "2 + 2 = 4;2 + 2"}}}));
  EXPECT_EQ(t.text, "2 + 2 = 4;2 + 2");
}

TEST_F(PluginEpisodes, ThatCannotBeFaithfulAreRefused) {
  expect_says(refusal(Fault::Data, [&] { made(of("alone")); }), "run() of its own");
  expect_says(fault("rewrites"), "rewrites what was said");
  expect_says(fault("sees"), "adds images");
  expect_says(fault("breaks"), "plugin.py:51: KeyError");
  EnvironmentOptions o = of("agian");
  expect_says(refusal(Fault::Usage, [&] { check_plugins(o, {}, &o); }), "again, tool");
  o.multi_turn_scheduler.reset(), o.environment = "cuont";
  expect_says(refusal(Fault::Usage, [&] { check_plugins(o, {}, &o); }), "have count");
  o.environment = "guess_number";
  EXPECT_FALSE(o.of_plugins()) << "the program's own";
}

}  // namespace
}  // namespace apus
