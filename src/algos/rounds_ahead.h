// SPDX-License-Identifier: Apache-2.0
// Rounds of answers that are made before it is their turn to be learnt from (--max_staleness): by weights that are up
// to so many rounds older than those that learn from them. Servers draw them while the trainer works.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <vector>

#include "algos/answers.h"

namespace apus {

class RoundsAhead {
 public:
  struct Shape {
    int64_t ahead = 1;                   // rounds
    int64_t questions = 1, updates = 1;  // of a round: micro-batches of the data, steps of the optimizer
    int64_t rank = 0, ranks = 1;
    int64_t longest = 0;  // of answers in pieces: tokens
  };
  explicit RoundsAhead(Shape shape) : shape_(shape) {}

  using Ask = std::function<AnswerRounds::Round(Actors& actors, const Samples& questions)>;
  // The round whose turn it is. `questions` are asked for a later one, as that round's own step would ask them; at the
  // beginning further ones of the data are asked too. All ranks call it together.
  // `rounds` judges what a checkpoint kept unjudged.
  AnswerRounds::Round next(Actors& actors, Samples questions, const Ask& ask, AnswerRounds* rounds = nullptr);
  // The same with servers: they draw the questions' answers on a thread of their own, by the weights as they stand now,
  // while this round is learnt from. Answers, and what is kept, are those of next(), but that rewards are asked for at
  // its turn.
  AnswerRounds::Round next_beside(Actors& actors, Samples questions, AnswerRounds& rounds);
  // All ranks together: waits until nothing is drawn any more, before the servers get other weights and before a
  // checkpoint. What went wrong there is thrown here.
  void settle(Actors& actors);
  // The same with answers in pieces (--partial_rollout): all that wait go on each time, so that those whose turn it is
  // end with the weights as they are, and each part of them is of the weights of its time.
  AnswerRounds::Round next_in_pieces(Actors& actors, Samples questions, AnswerRounds& rounds);

  // What waits, of every rank: answers that older weights gave cannot be made again.
  Json state() const;
  void restore(const Json& state);  // Fault::Usage: it is of another number of ranks

 private:
  void push(const Actors& actors, Samples questions, const Ask& ask);
  void fill(Actors& actors, Samples questions, const Ask& ask);
  void fill_up(Actors& actors, Samples questions, const std::function<void(Samples questions)>& push);
  AnswerRounds::Round take(Actors& actors, AnswerRounds* rounds);
  Json mine() const;

  const Shape shape_;
  struct Waiting {
    AnswerRounds::Round round;
    int64_t asked_at = 0;  // step
    Samples questions;     // of answers that have not ended, or are not judged
    bool judged = true;
    std::future<AnswerRounds::Round> drawn;  // valid: a thread is at it
  };
  std::deque<Waiting> waiting_;
  std::vector<std::string> of_ranks_;  // mine() of each, with several of them
};

}  // namespace apus
