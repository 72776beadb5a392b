// SPDX-License-Identifier: Apache-2.0
// Answers in several turns: a model and an environment take turns until the latter has done, or there is no room. Token
// ids are the record: what the model said is never encoded again, and what the environment says is put behind it. Each
// episode goes its own way: while the environment works on one, the model says turns of others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/answer/answer_all.h"
#include "environment/environment.h"
#include "media/media_item.h"
#include "text/tokenizer.h"

namespace apus {

struct EpisodeLimits {
  int64_t max_turns = 10;
  int64_t max_new_tokens = 512;  // of a turn, or of all turns together
  bool total = false;
  int64_t longest = 0;  // tokens that the model can read; 0: not known
};

// Tokens, and which of them stand for pictures.
struct Heard {
  std::vector<int32_t> ids;
  std::vector<MediaItem> media = {};
};

struct Conversation {
  std::vector<int32_t> prompt, ids;  // what asked, and all that came after it
  std::vector<MediaItem> media;      // of both, one behind the other
  std::vector<uint8_t> own;          // of ids: said by the model
  std::vector<float> logprobs;       // of ids; 0 where not own
  std::vector<int64_t> versions;     // of ids: of the weights they were drawn from; 0 where not own
  std::vector<int16_t> experts;      // FinishedAnswer::experts of prompt and ids
  struct Turn {
    size_t end;     // its own tokens end before this one of ids
    double reward;  // what the environment said to it
  };
  std::vector<Turn> turns;
};

// Of an agent in several conversations: the one that spoke last.
struct Trajectory : Conversation {
  std::vector<Conversation> beside;  // the others, in the order in which they began
  Json messages = Json::array();     // turns and observations, as texts
  std::string text;                  // the last turn
  bool cut = false;                  // by a limit of tokens, not ended by the model
  bool failed = false;               // the environment failed: what it said is no opinion
  double reward() const;
  size_t turns_taken() const;
};

// A turn that the model shall say. Its seed is a function of the episode's place and the turn.
struct TurnAsked {
  size_t episode = 0;
  Heard text;
  Sampling sampling;
};

using TurnSaid = std::function<void(size_t episode, FinishedAnswer answer)>;  // on whatever thread

// Who says what.
struct Speakers {
  // Begins to answer; each answer is told of when it is whole.
  std::function<void(std::vector<TurnAsked> asked, const TurnSaid& said)> model;
  // The model is asked for turns of all episodes that go on together, when the environment has replied to all. Else for
  // each as soon as it has been replied to, while it still says others.
  bool in_turns = false;
  // The messages of a reply as an episode's question; and as what stands between two turns of the model, behind the
  // token that ended the first.
  std::function<Heard(size_t episode, const EpisodeReply&)> question, between;
  const Tokenizer& tokenizer;
};

// Of two prompts, the second with a turn of the model and what was said to it added: all behind the token that ended
// the turn. Fault::Data when none of `ends` does.
std::vector<int32_t> behind_turn(const std::vector<int32_t>& before, const std::vector<int32_t>& whole,
                                 const std::vector<int32_t>& ends);

// What the tokens of a text met, by what was known of its beginning when that was read first.
void add_experts(std::vector<int16_t>& known, const std::vector<int16_t>& met);

// starts[i] is answered from prompts[i], unless the environment's reset brings another conversation.
std::vector<Trajectory> play(Environment& environment, const std::vector<EpisodeStart>& starts,
                             const std::vector<Heard>& prompts, const Sampling& sampling, const EpisodeLimits& limits,
                             const Speakers& speakers);

}  // namespace apus
