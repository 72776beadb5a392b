// SPDX-License-Identifier: Apache-2.0
// Episodes are played by a model that reads off a script: whose tokens are whose, when they end, and what is asked.
#include "environment/episodes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "base/error.h"
#include "tests/paths.h"

namespace apus {
namespace {

using Replies = std::vector<EpisodeReply>;

// Replies are those of a list, for every episode.
class Scripted final : public Environment {
 public:
  explicit Scripted(Replies replies) : replies_(std::move(replies)) {}
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override {
    return std::vector<EpisodeReply>(starts.size(), begins);
  }
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override {
    std::vector<EpisodeReply> out;
    for (const EpisodeTurn& turn : turns) {
      asked.push_back(turn);
      out.push_back(replies_.at(static_cast<size_t>(turn.turn) % replies_.size()));
    }
    return out;
  }
  void close() override { closed = true; }
  EpisodeReply begins;
  std::vector<EpisodeTurn> asked;
  bool closed = false;

 private:
  std::vector<EpisodeReply> replies_;
};

constexpr int32_t kStop = 2, kHeard = 90;

struct Stage {
  // Each turn says `words` tokens and the stop token, as far as there is room.
  explicit Stage(int64_t words = 2) : words(words) {}
  void says(const std::vector<TurnAsked>& turns, const TurnSaid& said) {
    asked_at_once.push_back(turns.size());
    for (const auto& [episode, text, sampling] : turns) {
      seeds[episode].push_back(sampling.seed);
      read.push_back(text.ids), seen.push_back(text.media);
      FinishedAnswer answer;
      for (int64_t k = 0; k <= words && k < sampling.max_new_tokens; ++k)
        answer.tokens.push_back({.id = k == words ? kStop : 40 + static_cast<int32_t>(k), .logprob = -0.5f});
      answer.finish = words < sampling.max_new_tokens ? Finish::Stop : Finish::Length;
      said(episode, answer);
    }
  }
  std::vector<Trajectory> play(Environment& environment, const EpisodeLimits& limits, size_t episodes = 1) {
    const Json row = Json::object();
    std::vector<EpisodeStart> starts;
    for (size_t i = 0; i < episodes; ++i) starts.push_back({.episode = static_cast<int64_t>(i), .row = &row});
    return apus::play(environment, starts, std::vector<Heard>(episodes, {{7, 8}, {picture_at(0)}}), {.seed = 11},
                      limits,
                      {.model = [this](const auto& turns, const TurnSaid& said) { says(turns, said); },
                       .in_turns = in_turns,
                       .question = [](size_t, const EpisodeReply&) { return Heard{{77}}; },
                       .between =
                           [](size_t, const EpisodeReply& r) {
                             Heard heard{std::vector<int32_t>(r.messages.size(), kHeard)};
                             if (!r.images.empty()) heard.media = {picture_at(0)};
                             return heard;
                           },
                       .tokenizer = *tokenizer});
  }
  static MediaItem picture_at(int64_t begin) {
    MediaItem item;
    item.begin = begin, item.length = 1;
    return item;
  }
  int64_t words;
  std::vector<std::vector<int32_t>> read;
  std::vector<std::vector<MediaItem>> seen;
  std::map<size_t, std::vector<uint64_t>> seeds;  // of each episode's turns
  std::vector<size_t> asked_at_once;
  bool in_turns = false;
  std::shared_ptr<const Tokenizer> tokenizer = Tokenizer::load(test::source_dir() / "assets/tokenizer");
};

TEST(Episodes, ObservationsAreNobodysWords) {
  Scripted environment(Replies{{.messages = user_says("go on"), .reward = 0.25}, {.reward = 1, .done = true}});
  Stage stage;
  const Trajectory t = stage.play(environment, {.max_turns = 5}).at(0);
  EXPECT_EQ(t.ids, (std::vector<int32_t>{40, 41, kStop, kHeard, 40, 41, kStop}));
  EXPECT_EQ(t.own, (std::vector<uint8_t>{1, 1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(t.logprobs, (std::vector<float>{-0.5f, -0.5f, -0.5f, 0, -0.5f, -0.5f, -0.5f}));
  ASSERT_EQ(t.turns.size(), 2u);
  EXPECT_EQ(t.turns[0].end, 3u);
  EXPECT_EQ(t.turns[1].end, 7u);
  EXPECT_EQ(t.reward(), 1.25);
  EXPECT_EQ(t.messages.size(), 3u);
  EXPECT_TRUE(environment.closed);
  EXPECT_EQ(stage.read.at(1), (std::vector<int32_t>{7, 8, 40, 41, kStop, kHeard})) << "the ids are the record";
  EXPECT_EQ(environment.asked.at(1).tokens, (std::vector<int32_t>{40, 41, kStop})) << "of the last turn";
  EXPECT_EQ(stage.seeds[0].at(0), 11u);
  EXPECT_NE(stage.seeds[0].at(1), 11u);
}

TEST(Episodes, ThatNeverEndAreBounded) {
  Scripted environment(Replies{{.messages = user_says("again")}});
  Stage stage;
  EXPECT_EQ(stage.play(environment, {.max_turns = 4}, 3).at(2).turns.size(), 4u);
  EXPECT_EQ(environment.asked.size(), 12u);
}

TEST(Episodes, EndWhereThereIsNoRoom) {
  Scripted environment(Replies{{.messages = user_says("again")}});
  Stage stage;
  const Trajectory cut = stage.play(environment, {.max_turns = 9, .max_new_tokens = 2}).at(0);
  EXPECT_TRUE(cut.cut);
  EXPECT_EQ(cut.ids.size(), 2u) << "a turn that was cut is the last one";
  const Trajectory total = stage.play(environment, {.max_turns = 9, .max_new_tokens = 7, .total = true}).at(0);
  EXPECT_TRUE(total.cut);
  EXPECT_EQ(std::count(total.own.begin(), total.own.end(), 1), 7);
  EXPECT_EQ(total.turns.size(), 3u);
  const Trajectory longest = stage.play(environment, {.max_turns = 9, .longest = 10}).at(0);
  EXPECT_TRUE(longest.cut);
  EXPECT_LE(longest.prompt.size() + longest.ids.size(), 9u);
  EXPECT_EQ(longest.own.back(), 1) << "nobody replies to the last observation, and it is left out";
}

TEST(Episodes, MayBeginWithAnotherQuestion) {
  Scripted environment(Replies{{.done = true}});
  environment.begins.messages = user_says("a maze");
  const Trajectory t = Stage().play(environment, {}).at(0);
  EXPECT_EQ(t.prompt, (std::vector<int32_t>{77}));
  EXPECT_TRUE(t.media.empty());
}

TEST(Episodes, OfAnEnvironmentThatFailedHaveNoReward) {
  Scripted environment(Replies{{.messages = user_says("on"), .reward = 2}, {.done = true, .failure = "gone"}});
  const Trajectory t = Stage().play(environment, {}).at(0);
  EXPECT_TRUE(t.failed);
  EXPECT_EQ(t.turns.size(), 2u);
  Scripted absent(Replies{{.done = true}});
  absent.begins.done = true, absent.begins.failure = "gone";
  const Trajectory first = Stage().play(absent, {}).at(0);
  EXPECT_TRUE(first.failed);
  EXPECT_EQ(first.turns.size(), 1u) << "the question is answered";
  EXPECT_TRUE(absent.asked.empty());
}

// The second begins beside the first, which then goes on.
TEST(Episodes, OfSeveralConversations) {
  const Replies replies{{.tokens = {7, 50}, .conversation = 1, .reward = 0.25},
                        {.tokens = {60}, .conversation = 0},
                        {.tokens = {70}, .conversation = 1},
                        {.tokens = {80}, .conversation = 1},
                        {.reward = 1, .done = true}};
  Scripted environment(replies);
  Stage stage(1);
  const Trajectory t = stage.play(environment, {.max_turns = 9}).at(0);
  EXPECT_EQ(t.prompt, (std::vector<int32_t>{7, 50}));
  EXPECT_EQ(t.ids, (std::vector<int32_t>{40, kStop, 70, 40, kStop, 80, 40, kStop}));
  EXPECT_EQ(t.own, (std::vector<uint8_t>{1, 1, 0, 1, 1, 0, 1, 1}));
  ASSERT_EQ(t.beside.size(), 1u);
  EXPECT_EQ(t.beside[0].prompt, (std::vector<int32_t>{7, 8}));
  EXPECT_EQ(t.beside[0].ids, (std::vector<int32_t>{40, kStop, 60, 40, kStop}));
  EXPECT_EQ(t.beside[0].logprobs, (std::vector<float>{-0.5f, -0.5f, 0, -0.5f, -0.5f}));
  EXPECT_EQ(t.beside[0].turns.size(), 2u);
  EXPECT_EQ(t.turns_taken(), 5u);
  EXPECT_EQ(t.reward(), 1.25);
  EXPECT_EQ(stage.read.at(2), (std::vector<int32_t>{7, 8, 40, kStop, 60})) << "it does not read the other one";

  Scripted again(replies);
  const Trajectory short_of_room = Stage(1).play(again, {.max_turns = 9, .max_new_tokens = 5, .total = true}).at(0);
  EXPECT_TRUE(short_of_room.cut);
  EXPECT_EQ(short_of_room.turns_taken(), 3u) << "5 tokens of all conversations";
}

TEST(Episodes, PicturesStandWhereTheyAreShown) {
  Scripted environment(Replies{{.messages = user_says("look"), .images = {"a.png"}},
                               {.messages = user_says("again"), .images = {"b.png"}}});
  Stage stage;
  const Trajectory t = stage.play(environment, {.max_turns = 9, .max_new_tokens = 6, .total = true}).at(0);
  EXPECT_EQ(t.ids, (std::vector<int32_t>{40, 41, kStop, kHeard, 40, 41, kStop}));
  ASSERT_EQ(t.media.size(), 2u) << "the last one is shown to nobody";
  EXPECT_EQ(t.media[0].begin, 0) << "the question's";
  EXPECT_EQ(t.media[1].begin, 5);
  ASSERT_EQ(stage.seen.size(), 2u);
  EXPECT_EQ(stage.seen[1].size(), 2u);
}

// The first episode is replied to when the second has ended, which takes several turns; the third in between.
class Slow final : public Environment {
 public:
  std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override {
    return std::vector<EpisodeReply>(starts.size());
  }
  std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override {
    std::vector<EpisodeReply> out;
    for (const EpisodeTurn& turn : turns) out.push_back(after(turn));
    return out;
  }
  size_t steps_at_once() const override { return 3; }
  void close() override {}
  std::vector<std::pair<int64_t, int64_t>> replied;  // episode, turn
  bool waited_in_vain = false;

 private:
  EpisodeReply after(const EpisodeTurn& turn) {
    std::unique_lock lock(mutex_);
    const int64_t turns = turn.episode == 1 ? 4 : 2, waits_for = turn.episode == 0 ? 4 : turn.episode == 2 ? 2 : 0;
    if (!changed_.wait_for(lock, std::chrono::seconds(20), [&] { return second_ >= waits_for; })) waited_in_vain = true;
    if (turn.episode == 1) ++second_;
    replied.emplace_back(turn.episode, turn.turn);
    changed_.notify_all();
    if (turn.turn + 1 == turns) return {.reward = 1, .done = true};
    return {.messages = user_says("on")};
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t second_ = 0;  // turns of the second that were replied to
};

TEST(Episodes, DoNotWaitForOneAnother) {
  Slow environment;
  Stage stage;
  const std::vector<Trajectory> all = stage.play(environment, {.max_turns = 9}, 3);
  EXPECT_FALSE(environment.waited_in_vain) << "while one is worked on, the others go on";
  ASSERT_EQ(environment.replied.size(), 8u);
  EXPECT_EQ(environment.replied.at(0), std::pair(int64_t{1}, int64_t{0}));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].turns.size(), i == 1 ? 4u : 2u);
    EXPECT_EQ(all[i].reward(), 1) << "each has its own replies";
  }
}

// What is drawn is a function of the episode and the turn, and not of when it is said.
TEST(Episodes, AreDrawnByTheirPlaceAndTurn) {
  Slow environment;
  Stage slow, quick;
  slow.play(environment, {.max_turns = 9}, 3);
  Scripted alike(Replies{{.messages = user_says("on")}});
  quick.in_turns = true;
  quick.play(alike, {.max_turns = 4}, 3);
  EXPECT_EQ(quick.asked_at_once, (std::vector<size_t>{3, 3, 3, 3})) << "all together";
  std::set<uint64_t> different;
  for (const auto& [episode, seeds] : slow.seeds)
    for (size_t turn = 0; turn < seeds.size(); ++turn) {
      EXPECT_EQ(seeds[turn], quick.seeds[episode].at(turn));
      different.insert(seeds[turn]);
    }
  EXPECT_EQ(different.size(), 8u);
}

// One that takes one call at a time is given all that waits for it.
TEST(Episodes, AreAskedTogetherWhereOneCallIsTaken) {
  class OneCall final : public Environment {
   public:
    std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override {
      reset_together = starts.size();
      return std::vector<EpisodeReply>(starts.size());
    }
    std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override {
      EXPECT_FALSE(busy.exchange(true));
      busy = false, steps += turns.size();
      return std::vector<EpisodeReply>(turns.size(), {.done = true});
    }
    void close() override {}
    std::atomic<bool> busy = false;
    size_t reset_together = 0, steps = 0;
  } environment;
  Stage().play(environment, {}, 40);
  EXPECT_EQ(environment.reset_together, 40u);
  EXPECT_EQ(environment.steps, 40u);
}

TEST(Episodes, EndWithTheirFirstFault) {
  class Breaks final : public Environment {
   public:
    std::vector<EpisodeReply> reset(const std::vector<EpisodeStart>& starts) override {
      return std::vector<EpisodeReply>(starts.size());
    }
    std::vector<EpisodeReply> step(const std::vector<EpisodeTurn>& turns) override {
      require(turns[0].episode != 2, Fault::Data, "broken");
      return {{.messages = user_says("on")}};
    }
    size_t steps_at_once() const override { return 4; }
    void close() override {}
  } environment;
  EXPECT_THROW(Stage().play(environment, {.max_turns = 1000}, 4), Error);
}

TEST(Episodes, NeedAReplyOrAnEnd) {
  Scripted environment(Replies(1));
  EXPECT_THROW(Stage().play(environment, {}), Error);
}

}  // namespace
}  // namespace apus
