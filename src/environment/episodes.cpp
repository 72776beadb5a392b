// SPDX-License-Identifier: Apache-2.0
#include "environment/episodes.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace apus {
namespace {

class Play {
 public:
  Play(Environment& environment, const EpisodeLimits& limits, const Speakers& speakers)
      : environment_(environment), limits_(limits), speakers_(speakers) {}

  std::vector<Trajectory> all(const std::vector<EpisodeStart>& starts, const std::vector<Heard>& prompts,
                              const Sampling& sampling) {
    out_.resize(starts.size());
    last_.assign(starts.size(), false), continues_ = last_;
    place_.assign(starts.size(), 0);
    said_.resize(starts.size());
    begin(starts, prompts);
    std::vector<size_t> playing(starts.size());
    for (size_t i = 0; i < playing.size(); ++i) playing[i] = i;
    for (int64_t turn = 0; !playing.empty(); ++turn) {
      Sampling of_turn = sampling;
      if (turn > 0) of_turn.seed = mix(sampling.seed, stream_named("turn"), static_cast<uint64_t>(turn));
      say(playing, of_turn);
      playing = heard(playing, starts, turn);
    }
    environment_.close();
    return std::move(out_);
  }

 private:
  void begin(const std::vector<EpisodeStart>& starts, const std::vector<Heard>& prompts) {
    const std::vector<EpisodeReply> replies = environment_.reset(starts);
    for (size_t i = 0; i < starts.size(); ++i) {
      Heard asks = prompts[i];
      if (!replies[i].tokens.empty()) asks = {.ids = replies[i].tokens};
      if (!replies[i].messages.empty()) asks = speakers_.question(i, replies[i]);
      out_[i].prompt = std::move(asks.ids), out_[i].media = std::move(asks.media);
      out_[i].failed = last_[i] = !replies[i].failure.empty();
    }
  }

  // How many tokens an episode may still say.
  int64_t room(const Trajectory& t) const { return room(t, static_cast<int64_t>(t.prompt.size() + t.ids.size())); }
  int64_t room(const Trajectory& t, int64_t read) const {
    int64_t left = limits_.max_new_tokens;
    const auto count = [&](const Conversation& c) { left -= std::count(c.own.begin(), c.own.end(), 1); };
    if (limits_.total) count(t), std::for_each(t.beside.begin(), t.beside.end(), count);
    if (limits_.longest > 0) left = std::min(left, limits_.longest - 1 - read);
    return left;
  }

  void say(const std::vector<size_t>& playing, Sampling sampling) {
    std::vector<Heard> texts;
    sampling.max_new_tokens = 1;
    for (const size_t i : playing) {
      const Trajectory& t = out_[i];
      Heard& text = texts.emplace_back(Heard{t.prompt, t.media});
      text.ids.insert(text.ids.end(), t.ids.begin(), t.ids.end());
      sampling.max_new_tokens = std::max(sampling.max_new_tokens, room(t));
    }
    const std::vector<FinishedAnswer> said = speakers_.model(texts, sampling);
    for (size_t k = 0; k < playing.size(); ++k) take(playing[k], said[k]);
  }

  void take(size_t i, const FinishedAnswer& said) {
    Trajectory& t = out_[i];
    require(said.finish == Finish::Stop || said.finish == Finish::Length, Fault::Device,
            "rolling out answers: ", said.error.empty() ? "an answer was not finished" : said.error);
    const auto room_left = static_cast<size_t>(std::max<int64_t>(1, room(t)));
    const size_t count = std::min(said.tokens.size(), room_left);
    t.cut = said.finish == Finish::Length || count < said.tokens.size();
    add_experts(t.experts, said.experts);
    std::vector<int32_t> words;
    for (size_t k = 0; k < count; ++k) {
      const TokenOut& token = said.tokens[k];
      t.ids.push_back(token.id), t.own.push_back(1);
      t.logprobs.push_back(token.logprob), t.versions.push_back(token.weights);
      words.push_back(token.id);
    }
    if (!t.cut && !words.empty()) words.pop_back();  // the token that ends the turn
    said_[i] = speakers_.tokenizer.decode(words, true);
    if (!continues_[i]) t.messages.push_back({{"role", "assistant"}, {"content", ""}});
    t.text = t.messages.back()["content"].get<std::string>() + said_[i];
    t.messages.back()["content"] = t.text;
    t.turns.push_back({t.ids.size(), 0});
  }

  // What the environment makes of a turn; those of `playing` that go on.
  std::vector<size_t> heard(const std::vector<size_t>& playing, const std::vector<EpisodeStart>& starts, int64_t turn) {
    std::vector<EpisodeTurn> turns;
    std::vector<size_t> asked, going_on;
    for (const size_t i : playing) {
      if (last_[i]) continue;
      const Trajectory& t = out_[i];
      const size_t begin = t.turns.size() > 1 ? first_of_last_turn(t) : 0;
      turns.push_back({.episode = starts[i].episode,
                       .turn = turn,
                       .text = said_[i],
                       .tokens = {t.ids.begin() + static_cast<long>(begin), t.ids.end()},
                       .cut = t.cut});
      asked.push_back(i);
    }
    if (turns.empty()) return {};
    const std::vector<EpisodeReply> replies = environment_.step(turns);
    for (size_t k = 0; k < asked.size(); ++k)
      if (goes_on(asked[k], replies[k], turn)) going_on.push_back(asked[k]);
    return going_on;
  }

  static size_t first_of_last_turn(const Trajectory& t) {
    size_t begin = t.ids.size();
    while (begin > 0 && t.own[begin - 1]) --begin;
    return begin;
  }

  bool goes_on(size_t i, const EpisodeReply& reply, int64_t turn) {
    Trajectory& t = out_[i];
    t.turns.back().reward = reply.reward;
    t.failed = !reply.failure.empty();
    // A turn that was cut has no end that an observation could stand behind.
    if (reply.done || t.failed || t.cut || turn + 1 >= limits_.max_turns) return false;
    if (reply.conversation) {
      if (*reply.conversation > t.beside.size()) return begins(i, reply.tokens);
      turn_to(i, *reply.conversation);
    }
    continues_[i] = !reply.continuation.empty();
    if (continues_[i] && !goes_on_in_message(t, reply.continuation)) return false;
    Heard next = continues_[i]          ? Heard{speakers_.tokenizer.encode(reply.continuation)}
                 : reply.tokens.empty() ? speakers_.between(i, reply)
                                        : Heard{reply.tokens};
    require(!next.ids.empty(), Fault::Data,
            "the environment replied nothing to a turn, and did not say that it is done: ",
            "an observation is wanted, or \"done\": true");
    for (const Json& message : reply.messages) t.messages.push_back(message);
    for (MediaItem& item : next.media) {
      item.begin += std::ssize(t.prompt) + std::ssize(t.ids);
      t.media.push_back(std::move(item));
    }
    t.ids.insert(t.ids.end(), next.ids.begin(), next.ids.end());
    t.own.resize(t.ids.size(), 0), t.logprobs.resize(t.ids.size(), 0), t.versions.resize(t.ids.size(), 0);
    if (room(t) > 0) return true;
    t.ids.resize(t.turns.back().end);  // nobody replies to it any more
    t.own.resize(t.ids.size()), t.logprobs.resize(t.ids.size()), t.versions.resize(t.ids.size());
    std::erase_if(t.media,
                  [&](const MediaItem& item) { return item.begin >= std::ssize(t.prompt) + std::ssize(t.ids); });
    t.cut = true;
    return false;
  }

  // Another conversation of the episode.
  bool begins(size_t i, const std::vector<int32_t>& prompt) {
    Trajectory& t = out_[i];
    if (room(t, std::ssize(prompt)) <= 0) return t.cut = true, false;
    t.beside.push_back({.prompt = prompt});
    turn_to(i, t.beside.size());
    return true;
  }

  // The one that speaks from now on, by its number.
  void turn_to(size_t i, size_t number) {
    Trajectory& t = out_[i];
    Conversation& speaks = t;
    t.beside.insert(t.beside.begin() + static_cast<long>(place_[i]), std::move(speaks));
    speaks = std::move(t.beside[number]);
    t.beside.erase(t.beside.begin() + static_cast<long>(number));
    place_[i] = number;
  }

  // The token that ended the turn is taken back, as the message has not ended. A turn of nothing else has no place in
  // the message.
  static bool goes_on_in_message(Trajectory& t, const std::string& continuation) {
    const size_t begin = t.turns.size() > 1 ? first_of_last_turn(t) : 0;
    if (t.ids.size() - begin < 2) return false;
    t.ids.pop_back(), t.own.pop_back(), t.logprobs.pop_back(), t.versions.pop_back();
    --t.turns.back().end;
    t.messages.back()["content"] = t.text + continuation;
    return true;
  }

  Environment& environment_;
  const EpisodeLimits& limits_;
  const Speakers& speakers_;
  std::vector<Trajectory> out_;
  std::vector<bool> last_;         // the turn that is said now is the last one
  std::vector<bool> continues_;    // what is said now stands in the message of the turn before
  std::vector<size_t> place_;      // the number of the conversation that speaks
  std::vector<std::string> said_;  // the last turn; of a message that went on, its last part
};

}  // namespace

double Trajectory::reward() const {
  double sum = 0;
  const auto add = [&](const Conversation& c) {
    for (const Turn& turn : c.turns) sum += turn.reward;
  };
  add(*this), std::for_each(beside.begin(), beside.end(), add);
  return sum;
}

size_t Trajectory::turns_taken() const {
  size_t taken = turns.size();
  for (const Conversation& other : beside) taken += other.turns.size();
  return taken;
}

std::vector<int32_t> behind_turn(const std::vector<int32_t>& before, const std::vector<int32_t>& whole,
                                 const std::vector<int32_t>& ends) {
  const auto turn = std::mismatch(whole.begin(), whole.end(), before.begin(), before.end()).first;
  const auto end = std::find_first_of(turn, whole.end(), ends.begin(), ends.end());
  require(end != whole.end(), Fault::Data, "the chat template ends no turn with a token that ends an answer");
  return {end + 1, whole.end()};
}

void add_experts(std::vector<int16_t>& known, const std::vector<int16_t>& met) {
  if (met.size() > known.size()) known.insert(known.end(), met.begin() + std::ssize(known), met.end());
}

std::vector<Trajectory> play(Environment& environment, const std::vector<EpisodeStart>& starts,
                             const std::vector<Heard>& prompts, const Sampling& sampling, const EpisodeLimits& limits,
                             const Speakers& speakers) {
  return Play(environment, limits, speakers).all(starts, prompts, sampling);
}

}  // namespace apus
