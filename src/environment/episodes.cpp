// SPDX-License-Identifier: Apache-2.0
#include "environment/episodes.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <variant>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "environment/environment_calls.h"

namespace apus {
namespace {

// What happened to an episode, or anywhere.
struct Event {
  size_t place = 0;
  std::variant<FinishedAnswer, EpisodeReply, std::exception_ptr> what;
};

class Events {
 public:
  void push(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    came_.notify_one();
  }
  std::vector<Event> all() {  // waits for one
    std::unique_lock lock(mutex_);
    came_.wait(lock, [&] { return !events_.empty(); });
    return std::exchange(events_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<Event> events_;
};

class Play {
 public:
  Play(Environment& environment, const std::vector<EpisodeStart>& starts, const std::vector<Heard>& prompts,
       const Sampling& sampling, const EpisodeLimits& limits, const Speakers& speakers)
      : environment_(environment),
        starts_(starts),
        prompts_(prompts),
        sampling_(sampling),
        limits_(limits),
        speakers_(speakers),
        out_(starts.size()),
        places_(starts.size()) {}

  std::vector<Trajectory> all() {
    {
      const auto events = events_;
      EnvironmentCalls calls(environment_, starts_.size(),
                             {.reply =
                                  [events](size_t place, EpisodeReply reply) {
                                    events->push({place, std::move(reply)});
                                  },
                              .fault =
                                  [events](std::exception_ptr fault) {
                                    events->push({0, fault});
                                  }});
      calls.reset(starts_);
      replied_to_ = starts_.size();
      for (size_t left = starts_.size(); left > 0;) {
        for (Event& event : events_->all()) left -= ends(event, calls);
        if (!speakers_.in_turns || replied_to_ == 0) say();
      }
    }
    environment_.close();
    tell_failures();
    return std::move(out_);
  }

 private:
  // Of each episode, by its place.
  struct Place {
    int64_t turn = -1;        // that is or was said last
    bool last = false;        // it is the last one
    bool continues = false;   // what is said now stands in the message of the turn before
    size_t conversation = 0;  // the number of the one that speaks
    std::string said;         // the last turn; of a message that went on, its last part
  };

  // Whether the episode is over.
  bool ends(Event& event, EnvironmentCalls& calls) {
    if (const auto* fault = std::get_if<std::exception_ptr>(&event.what)) std::rethrow_exception(*fault);
    Place& p = places_[event.place];
    if (const auto* said = std::get_if<FinishedAnswer>(&event.what)) {
      take(event.place, *said);
      if (p.last) return true;
      ++replied_to_;
      calls.step(event.place, turn_of(event.place));
      return false;
    }
    const auto& reply = std::get<EpisodeReply>(event.what);
    --replied_to_;
    if (p.turn >= 0 && !goes_on(event.place, reply)) return true;
    if (p.turn < 0) begin(event.place, reply);
    ready_.push_back(event.place);
    return false;
  }

  void begin(size_t i, const EpisodeReply& reply) {
    Heard asks = prompts_[i];
    if (!reply.tokens.empty()) asks = {.ids = reply.tokens};
    if (!reply.messages.empty()) asks = speakers_.question(i, reply);
    out_[i].prompt = std::move(asks.ids), out_[i].media = std::move(asks.media);
    out_[i].failed = places_[i].last = !reply.failure.empty();
    if (out_[i].failed) failures_.push_back(reply.failure);
  }

  void tell_failures() const {
    if (failures_.empty()) return;
    log_warning(failures_[0], " (--environment_failure skip: ", failures_.size(),
                failures_.size() == 1 ? " answer ends there)" : " answers end there)");
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

  void say() {
    std::sort(ready_.begin(), ready_.end());
    std::vector<TurnAsked> asked;
    for (const size_t i : std::exchange(ready_, {})) {
      const Trajectory& t = out_[i];
      const auto turn = static_cast<uint64_t>(++places_[i].turn);
      TurnAsked& one = asked.emplace_back(TurnAsked{i, {t.prompt, t.media}, sampling_});
      one.text.ids.insert(one.text.ids.end(), t.ids.begin(), t.ids.end());
      one.sampling.max_new_tokens = std::max<int64_t>(1, room(t));
      if (turn > 0) one.sampling.seed = mix(sampling_.seed, stream_named("turn"), turn);
      one.sampling.seed += i;
    }
    if (!asked.empty())
      speakers_.model(std::move(asked), [events = events_](size_t place, FinishedAnswer answer) {
        events->push({place, std::move(answer)});
      });
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
    places_[i].said = speakers_.tokenizer.decode(words, true);
    if (!places_[i].continues) t.messages.push_back({{"role", "assistant"}, {"content", ""}});
    t.text = t.messages.back()["content"].get<std::string>() + places_[i].said;
    t.messages.back()["content"] = t.text;
    t.turns.push_back({t.ids.size(), 0});
  }

  EpisodeTurn turn_of(size_t i) const {
    const Trajectory& t = out_[i];
    const size_t begin = t.turns.size() > 1 ? first_of_last_turn(t) : 0;
    return {.episode = starts_[i].episode,
            .turn = places_[i].turn,
            .text = places_[i].said,
            .tokens = {t.ids.begin() + static_cast<long>(begin), t.ids.end()},
            .cut = t.cut};
  }

  static size_t first_of_last_turn(const Trajectory& t) {
    size_t begin = t.ids.size();
    while (begin > 0 && t.own[begin - 1]) --begin;
    return begin;
  }

  bool goes_on(size_t i, const EpisodeReply& reply) {
    Trajectory& t = out_[i];
    bool& continues = places_[i].continues;
    t.turns.back().reward = reply.reward;
    t.failed = !reply.failure.empty();
    if (t.failed) failures_.push_back(reply.failure);
    // A turn that was cut has no end that an observation could stand behind.
    if (reply.done || t.failed || t.cut || places_[i].turn + 1 >= limits_.max_turns) return false;
    if (reply.conversation) {
      if (*reply.conversation > t.beside.size()) return begins(i, reply.tokens);
      turn_to(i, *reply.conversation);
    }
    continues = !reply.continuation.empty();
    if (continues && !goes_on_in_message(t, reply.continuation)) return false;
    Heard next = continues              ? Heard{speakers_.tokenizer.encode(reply.continuation)}
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
    t.beside.insert(t.beside.begin() + static_cast<long>(places_[i].conversation), std::move(speaks));
    speaks = std::move(t.beside[number]);
    t.beside.erase(t.beside.begin() + static_cast<long>(number));
    places_[i].conversation = number;
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
  const std::vector<EpisodeStart>& starts_;
  const std::vector<Heard>& prompts_;
  const Sampling& sampling_;
  const EpisodeLimits& limits_;
  const Speakers& speakers_;
  std::vector<Trajectory> out_;
  std::vector<Place> places_;
  std::vector<size_t> ready_;  // for their next turn
  size_t replied_to_ = 0;      // episodes that the environment works on
  std::vector<std::string> failures_;
  const std::shared_ptr<Events> events_ = std::make_shared<Events>();  // also of answers that come when it is gone
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
  return Play(environment, starts, prompts, sampling, limits, speakers).all();
}

}  // namespace apus
