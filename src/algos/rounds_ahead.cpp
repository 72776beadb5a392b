// SPDX-License-Identifier: Apache-2.0
#include "algos/rounds_ahead.h"

#include <iterator>
#include <utility>

#include "algos/answer_record.h"
#include "base/error.h"
#include "device/agree.h"
#include "train/rollout.h"

namespace apus {
namespace {

Json waiting_question(const Sample& question) { return {{"ids", question.ids}, {"row", question.row}}; }

Sample waiting_question_of(const Json& kept) {
  Sample out;
  out.ids = kept.at("ids").get<std::vector<int32_t>>(), out.row = kept.at("row").get<std::string>();
  out.trained.assign(out.ids.size(), 0);
  return out;
}

}  // namespace

// The same questions get the same random numbers as they would in their turn.
void RoundsAhead::push(const Actors& actors, Samples questions, const Ask& ask) {
  Actors then = actors;
  then.step += std::ssize(waiting_) * shape_.updates;
  AnswerRounds::Round round = ask(then, questions);
  for (Answer& answer : round.answers) answer.versions.assign(answer.ids.size(), actors.step);
  waiting_.push_back({.round = std::move(round), .asked_at = actors.step, .questions = std::move(questions)});
}

AnswerRounds::Round RoundsAhead::next(Actors& actors, Samples questions, const Ask& ask, AnswerRounds* rounds) {
  fill(actors, std::move(questions), ask);
  for (Waiting& waiting : waiting_)
    if (waiting.judged) waiting.questions.clear();  // their answers have ended
  return take(actors, rounds);
}

// A round that comes up in so many collections may have that part of its tokens left to say.
AnswerRounds::Round RoundsAhead::next_in_pieces(Actors& actors, Samples questions, AnswerRounds& rounds) {
  fill(actors, std::move(questions),
       [&](const Actors& then, const Samples& asked) { return rounds.open(then, asked); });
  const int64_t parts = shape_.ahead + 1;
  std::vector<AnswerRounds::Piece> pieces;
  for (int64_t until = 0; until < std::ssize(waiting_); ++until)
    pieces.push_back({.round = &waiting_[static_cast<size_t>(until)].round,
                      .most = (shape_.longest * (parts - until) + parts - 1) / parts});
  rounds.go_on(actors, pieces);
  rounds.close(actors, waiting_.front().round, waiting_.front().questions);
  return take(actors, &rounds);
}

// One thread after the other: each waits for the one before it, as the servers have one version of the weights, and
// answer one order at a time.
AnswerRounds::Round RoundsAhead::next_beside(Actors& actors, Samples questions, AnswerRounds& rounds) {
  settle(actors);
  rounds.bring_servers(actors);
  actors.rollout->hold_servers(true);
  std::shared_future<void> before;
  fill_up(actors, std::move(questions), [&](Samples asked) {
    Actors then = actors;
    then.step += std::ssize(waiting_) * shape_.updates;
    then.more_rows = nullptr,
    then.data_ranks = then.sharers = nullptr;  // a thread has no part in what ranks do together
    Waiting& waiting = waiting_.emplace_back();
    waiting.asked_at = actors.step, waiting.judged = false, waiting.questions = std::move(asked);
    std::promise<void> done;
    auto after = done.get_future().share();
    waiting.drawn = std::async(std::launch::async, [then, before, done = std::move(done), step = actors.step, &rounds,
                                                    questions = waiting.questions]() mutable {
      const std::shared_ptr<void> says(nullptr, [&done](void*) { done.set_value(); });
      if (before.valid()) before.wait();
      AnswerRounds::Round round = rounds.draw(then, questions);
      for (Answer& answer : round.answers) answer.versions.assign(answer.ids.size(), step);
      return round;
    });
    before = std::move(after);
  });
  return take(actors, &rounds);
}

void RoundsAhead::settle(Actors& actors) {
  for (Waiting& waiting : waiting_)
    if (waiting.drawn.valid()) waiting.round = waiting.drawn.get();
  if (actors.rollout) actors.rollout->hold_servers(false);
  if (shape_.ranks > 1 && actors.data_ranks) of_ranks_ = gather_text(json_text(mine()), *actors.data_ranks);
}

void RoundsAhead::fill(Actors& actors, Samples questions, const Ask& ask) {
  fill_up(actors, std::move(questions), [&](Samples asked) { push(actors, std::move(asked), ask); });
}

void RoundsAhead::fill_up(Actors& actors, Samples questions, const std::function<void(Samples questions)>& push) {
  push(std::move(questions));
  while (std::ssize(waiting_) <= shape_.ahead) {
    questions.clear();
    for (int64_t i = 0; i < shape_.questions && actors.more_rows; ++i) {
      auto more = actors.more_rows();
      if (!more) break;
      questions.insert(questions.end(), std::move_iterator(more->begin()), std::move_iterator(more->end()));
    }
    if (actors.summed(static_cast<double>(questions.size())) == 0) break;  // a short dataset has fewer rounds
    push(std::move(questions));
  }
}

AnswerRounds::Round RoundsAhead::take(Actors& actors, AnswerRounds* rounds) {
  Waiting& turn = waiting_.front();
  if (turn.drawn.valid()) turn.round = turn.drawn.get();
  require(turn.judged || rounds, Fault::Bug, "answers that wait have not been judged");
  if (!turn.judged) rounds->judge(actors, turn.round, turn.questions, true);
  AnswerRounds::Round round = std::move(turn.round);
  round.age = actors.step - waiting_.front().asked_at;
  waiting_.pop_front();
  return round;
}

Json RoundsAhead::mine() const {
  Json rounds = Json::array();
  for (const Waiting& waiting : waiting_) {
    Json answers = Json::array(), questions = Json::array();
    for (const Sample& question : waiting.questions) questions.push_back(waiting_question(question));
    for (const Answer& answer : waiting.round.answers) answers.push_back(answer_record(answer, "--max_staleness"));
    rounds.push_back({{"asked_at", waiting.asked_at},
                      {"seconds", waiting.round.seconds},
                      {"tokens", waiting.round.tokens},
                      {"resampled", waiting.round.resampled},
                      {"turn", waiting.round.turn},
                      {"judged", waiting.judged},
                      {"questions", std::move(questions)},
                      {"answers", std::move(answers)}});
  }
  return {{"rank", shape_.rank}, {"rounds", std::move(rounds)}};
}

Json RoundsAhead::state() const {
  if (of_ranks_.empty()) return {{"rounds_ahead", Json::array({mine()})}};
  Json all = Json::array();
  for (const std::string& text : of_ranks_) all.push_back(parse_json(text, "rounds that wait", Fault::Comm));
  return {{"rounds_ahead", std::move(all)}};
}

void RoundsAhead::restore(const Json& state) {
  const auto kept = state.find("rounds_ahead");
  if (kept == state.end()) return;
  int64_t ranks = 0;
  waiting_.clear();
  for (const Json& of_rank : *kept) {
    const auto rank = of_rank.at("rank").get<int64_t>();
    ranks = std::max(ranks, rank + 1);
    if (rank != shape_.rank || !waiting_.empty()) continue;
    for (const Json& round : of_rank.at("rounds")) {
      Waiting& waiting = waiting_.emplace_back();
      waiting.asked_at = round.at("asked_at").get<int64_t>();
      waiting.round.seconds = round.at("seconds").get<double>(),
      waiting.round.tokens = round.at("tokens").get<int64_t>();
      waiting.round.resampled = round.at("resampled").get<int64_t>();
      waiting.round.turn = round.value("turn", int64_t{0}), waiting.judged = round.value("judged", true);
      for (const Json& question : round.value("questions", Json::array()))
        waiting.questions.push_back(waiting_question_of(question));
      for (const Json& answer : round.at("answers")) waiting.round.answers.push_back(answer_of_record(answer));
    }
  }
  require(ranks == shape_.ranks, Fault::Usage, "the checkpoint holds answers that ", ranks,
          " processes made ahead (--max_staleness), and these are ", shape_.ranks,
          ": go on with as many, or from the weights alone with --resume_only_model true");
}

}  // namespace apus
