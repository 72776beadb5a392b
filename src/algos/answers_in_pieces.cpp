// SPDX-License-Identifier: Apache-2.0
// Answers that are drawn piece by piece (--partial_rollout).
#include <map>

#include "algos/answers.h"
#include "base/clock.h"
#include "base/error.h"
#include "train/rollout.h"

namespace apus {

AnswerRounds::Round AnswerRounds::open(const Actors& actors, const Samples& questions) const {
  Round round;
  round.turn = actors.step;
  const Part part = mine_of(questions, o_.each);
  for (size_t i = 0; i < part.end - part.first; ++i) {
    Answer& answer = round.answers.emplace_back();
    answer.group = part.question(i), answer.open = true;
    const Sample& question = questions[static_cast<size_t>(answer.group)];
    require(
        question.media.empty(), Fault::Usage,
        "--partial_rollout goes on with answers by their tokens, and a question has images, videos or sounds: leave it "
        "away");
    answer.prompt = question.ids;
  }
  return round;
}

// Random numbers are of a token's place, so a piece goes on where the last one ended. What may say as many further
// tokens is asked for at once: usually all.
void AnswerRounds::go_on(Actors& actors, const std::vector<Piece>& pieces) {
  actors.rollout->ask_servers(o_.servers, rank_ == 0);
  struct Asked {
    std::vector<Answer*> answers;
    std::vector<std::vector<int32_t>> texts;
    std::vector<uint64_t> seeds;
  };
  std::map<int64_t, Asked> by_length;
  for (const Piece& piece : pieces)
    for (size_t i = 0; i < piece.round->answers.size(); ++i) {
      Answer& answer = piece.round->answers[i];
      const int64_t further = piece.most - std::ssize(answer.ids);
      if (!answer.open || further <= 0) continue;
      Asked& asked = by_length[further];
      asked.answers.push_back(&answer), asked.seeds.push_back(seed_of(piece.round->turn) + i);
      asked.texts.push_back(answer.prompt);
      asked.texts.back().insert(asked.texts.back().end(), answer.ids.begin(), answer.ids.end());
    }
  const Stopwatch watch;
  int64_t tokens = 0;
  for (auto& [further, asked] : by_length) {
    Sampling sampling = sampling_;
    sampling.max_new_tokens = further;
    const auto more = actors.rollout->answers(asked.texts, sampling, {}, nullptr, asked.seeds);
    for (size_t i = 0; i < more.size(); ++i) {
      Answer& answer = *asked.answers[i];
      take(answer, more[i]);
      answer.versions.resize(answer.ids.size(), actors.step), tokens += std::ssize(more[i].tokens);
      answer.open = answer.cut && std::ssize(answer.ids) < sampling_.max_new_tokens;
    }
  }
  actors.rollout->serve();
  for (const Piece& piece : pieces) piece.round->seconds = watch.seconds(), piece.round->tokens = tokens;
}

void AnswerRounds::close(Actors& actors, Round& round, const Samples& questions) {
  for (Answer& answer : round.answers) {
    require(!answer.open, Fault::Bug, "an answer that has not ended is to be rewarded");
    answer.text = said(answer, false);
  }
  judge(actors, round, questions, true);
}

}  // namespace apus
