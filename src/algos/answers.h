// SPDX-License-Identifier: Apache-2.0
// Answers that are learnt from: asked of the policy and rewarded, or read from a file.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "environment/episodes.h"
#include "reward/reward.h"
#include "reward/reward_options.h"
#include "reward/round_judging.h"
#include "train/algorithm.h"
#include "train/options/rollout_options.h"

namespace apus {

struct Answer {
  std::vector<int32_t> prompt, ids;    // the record; text is derived of it
  std::vector<MediaItem> media;        // of the prompt, and of what an environment says in ids
  std::vector<int16_t> experts;        // FinishedAnswer::experts of prompt and ids; empty: nobody was asked
  std::vector<float> engine_logprobs;  // of ids, at the rollout's temperature; empty: not known
  std::string text;                    // of several turns the last one
  // Of an answer in several turns, else empty: which of ids the policy said (the others are observations), where turns
  // end, and all that was said.
  std::vector<uint8_t> own;
  std::vector<Conversation::Turn> turns;
  Json trajectory;
  std::vector<Conversation> beside;      // what an agent asked and was answered in other conversations than this one
  bool cut = false;                      // by max_completion_length
  bool open = false;                     // drawn in pieces, and not ended yet
  std::vector<int64_t> versions;         // of ids: the updates that the weights had seen which gave them
  int64_t group = 0;                     // the question
  double reward = 0, greedy_reward = 0;  // the latter of the question's likeliest answer, where it was asked
  std::vector<double> rewards;           // of each function; nan: no opinion

  bool says(size_t i) const { return own.empty() || own[i]; }  // is ids[i] the policy's?
  int64_t said() const;                                        // tokens of the policy, in all conversations
  size_t turns_taken() const;
};

// Each conversation by itself: what is learnt of an agent. All that are of an answer are worth what it is.
struct Conversations {
  std::vector<Answer> each;    // those of an answer one behind the other
  std::vector<size_t> answer;  // of each: which it is of
  std::vector<float> share;    // of each: of the tokens that the policy said in its answer
};
Conversations conversations_of(const std::vector<Answer>& answers);

// Apart, as engines take them.
std::vector<std::vector<int32_t>> ids_of(const std::vector<Heard>& texts);
std::vector<std::vector<MediaItem>> media_of(const std::vector<Heard>& texts);

// Whether the answers [first, end) are worth different things, so that there is something to learn.
bool has_spread(const std::vector<Answer>& answers, size_t first, size_t end);
std::vector<std::pair<size_t, size_t>> groups_of(const std::vector<Answer>& answers);

// The answer behind its question. What is trained are the policy's tokens of it, or none. `joins`: the group of the
// sample before it.
Sample sample_of(const Answer& answer, bool learnt, bool joins);
// Numbers of an answer's tokens, or of the policy's among them, as a column of that sample: each stands where its token
// is the label.
std::vector<float> answer_column(const Answer& answer, const std::vector<float>& of_tokens);

// A line for each: prompt, answer, what each function and all together gave, at a step counted from 1.
std::string completion_lines(const std::vector<Answer>& answers, const std::vector<std::string>& functions,
                             const Tokenizer& tokenizer, int64_t step);
// Adds lines of all ranks to completions.jsonl, by rank; the first one writes. `data_ranks` null: one rank.
void write_completions(const std::string& lines, const std::filesystem::path& dir, Comm* data_ranks);

struct RoundOptions {
  RewardOptions rewards;
  EnvironmentOptions environment;
  RolloutServerOptions servers;              // ... and the words that end an answer
  int64_t each = 1, each_in_evaluation = 1;  // answers to a question
  bool asks_greedy = false;                  // the likeliest answer is rewarded too, for comparison
  bool resamples = false;                    // groups without spread give way to further questions
  int64_t max_resample_times = 3;
  int64_t scored_at_once = 64;  // answers that a reward model reads in one forward pass
  // So many neighbouring ranks are given the same questions in training; each gives its share of the answers.
  int64_t sharers = 1;
  // Why no question may have images, videos or sounds: the flag and what it does. Empty: they may.
  std::string texts_alone = {};
};
// Of what has an answer leave this process, or wait for its turn, as its tokens.
std::string texts_alone(const RolloutServerOptions& servers, bool dumps);

class AnswerRounds {
 public:
  AnswerRounds(RoundOptions options, const RunSetting& setting);

  struct Round {
    std::vector<Answer> answers;  // groups one after the other; whole ones, unless neighbours have the rest
    double seconds = 0;           // that the engine took
    int64_t tokens = 0;           // that it generated, also of answers that were left out
    int64_t resampled = 0;        // groups that took the place of others
    int64_t age = 0;              // updates since it was asked
    int64_t turn = 0;             // of one in pieces: the step whose random numbers it gets
  };
  // A row as a question. Thread-safe.
  Sample question(const Row& row, const Encoder& encoder) const;
  // `training`: further questions may be asked for groups without spread.
  Round ask(Actors& actors, const Samples& questions, bool training);
  // The same in two parts: the answers of training, asked of servers that have the weights, which another thread may do
  // while this one trains; and what they are worth.
  Round draw(Actors& actors, const Samples& questions);
  void judge(Actors& actors, Round& round, const Samples& questions, bool training);
  void bring_servers(Actors& actors) const;  // all ranks together: the servers get the weights
  // The same in pieces, which may be of several versions of the weights; drawn by one of them, the answers are those of
  // ask(). open() says what is to be answered, go_on() draws the answers of rounds up to so many tokens each, close()
  // rewards answers that have all ended.
  struct Piece {
    Round* round;
    int64_t most;
  };
  Round open(const Actors& actors, const Samples& questions) const;
  void go_on(Actors& actors, const std::vector<Piece>& pieces);
  void close(Actors& actors, Round& round, const Samples& questions);
  // Functions first, then reward models, then the environment.
  const std::vector<std::string>& functions() const { return names_; }
  const std::vector<double>& weights() const { return weights_; }

 private:
  // Which of the `each` answers to every question are asked for here, in the questions' order.
  struct Part {
    int64_t each = 1;
    size_t first = 0, end = 0;
    bool evaluation = false;
    int64_t before = 0;  // questions of an evaluation's earlier batches
    int64_t question(size_t answer) const { return static_cast<int64_t>(first + answer) / each; }
  };
  uint64_t seed_of(int64_t step) const;
  Part evaluated_part(const Actors& actors, const Samples& questions);
  uint64_t evaluation_seed(const Actors& actors, const Part& part) const;
  void take(Answer& answer, const FinishedAnswer& more) const;
  std::string said(const Answer& answer, bool at_word) const;
  static Part all_of(const Samples& questions, int64_t each);
  Part mine_of(const Samples& questions, int64_t each) const;
  std::vector<Answer> rolled_out(Actors& actors, const Samples& questions, const Part& part, uint64_t seed,
                                 Round& round);
  std::vector<Answer> answered(Actors& actors, const std::vector<Heard>& prompts, const Sampling& sampling,
                               const Part& part) const;
  Answer answer_of(const FinishedAnswer& finished) const;
  std::vector<Answer> played(Actors& actors, const std::vector<Json>& rows, const std::vector<Heard>& prompts,
                             const Part& part, const Sampling& sampling) const;
  Heard between_turns(const Json& row, const EpisodeReply& reply) const;
  void begin_judging(const Actors& actors, const Samples& questions, const Part& part);
  RewardInput reward_input(const Answer& answer, const Actors& actors, const std::vector<Json>& rows) const;
  void reward(Actors& actors, std::vector<Answer>& answers, const Samples& questions);
  std::vector<double> judged_by(const Actors& actors, size_t reward_model, const std::vector<Answer>& answers) const;
  void add_greedy_rewards(Actors& actors, const Samples& questions, std::vector<Answer>& answers, Round& round);
  void resample(Actors& actors, Round& round, int64_t each);

  const RoundOptions o_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  Sampling sampling_;
  const uint64_t seed_;
  const int64_t rank_, ranks_;
  const c10::Device device_;
  const std::shared_ptr<Plugins> plugins_;  // null: none are given
  Rewards rewards_;
  // Of the round that is being drawn: its questions' columns, and what rewards say of its answers as they come.
  struct Early {
    std::vector<Json> rows;
    std::unique_ptr<RoundJudging> judging;
  } early_;
  std::vector<std::string> names_;
  std::vector<double> weights_;
  struct {
    int64_t step = -1, questions = 0;
  } evaluated_;                               // the evaluation that goes on, and what it has asked so far
  std::optional<StopWords> stop_;             // absent: no text ends an answer
  std::unique_ptr<Environment> environment_;  // null: answers are of one turn
  // What the chat template has behind the token that ends a turn (often a line's end): reward models have learnt to
  // read there. Known from the first question on.
  mutable std::mutex mutex_;
  mutable std::optional<std::vector<int32_t>> behind_turn_;
  mutable const Encoder* encoder_ = nullptr;  // of the questions, for what environments say; lives as long as the rows
};

}  // namespace apus
