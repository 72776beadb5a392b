// SPDX-License-Identifier: Apache-2.0
// Answers in several turns: what an environment says in words and pictures, as tokens.
#include <cmath>

#include "algos/answers.h"
#include "base/error.h"
#include "base/random.h"
#include "data/rows/media_refs.h"
#include "train/rollout.h"

namespace apus {
namespace {

Json without_media(Json row) {
  for (const MediaKind& kind : kMediaKinds) row.erase(kind.column);
  row.erase("objects");
  return row;
}

// The messages with a tag for every picture.
Json with_tags(const EpisodeReply& reply) {
  Json messages = reply.messages;
  std::string missing;
  for (size_t tags = tags_in(messages, "<image>"); tags < reply.images.size(); ++tags) missing += "<image>";
  if (!missing.empty()) messages.back()["content"] = missing + messages.back()["content"].get<std::string>();
  return messages;
}

// Servers, and ranks that answer together, are asked for all that are due at once.
void say(Rollout& rollout, std::vector<TurnAsked> turns, const TurnSaid& said) {
  std::vector<size_t> episode;
  std::vector<Heard> texts;
  std::vector<uint64_t> seeds;
  Sampling most = turns.at(0).sampling;
  std::vector<EngineRequest> requests;
  for (TurnAsked& turn : turns) {
    episode.push_back(turn.episode), seeds.push_back(turn.sampling.seed);
    most.max_new_tokens = std::max(most.max_new_tokens, turn.sampling.max_new_tokens);
    if (rollout.takes_more())
      requests.push_back(
          {.prompt = std::move(turn.text.ids), .media = std::move(turn.text.media), .sampling = turn.sampling});
    else
      texts.push_back(std::move(turn.text));
  }
  const auto ended = [said, episode](size_t i, const FinishedAnswer& answer) { said(episode[i], answer); };
  if (rollout.takes_more()) return rollout.begin(std::move(requests), ended);
  const auto answers = rollout.answers(ids_of(texts), most, media_of(texts), nullptr, seeds);
  for (size_t i = 0; i < answers.size(); ++i) ended(i, answers[i]);
}

}  // namespace

std::vector<std::vector<int32_t>> ids_of(const std::vector<Heard>& texts) {
  std::vector<std::vector<int32_t>> out;
  for (const Heard& text : texts) out.push_back(text.ids);
  return out;
}

std::vector<std::vector<MediaItem>> media_of(const std::vector<Heard>& texts) {
  std::vector<std::vector<MediaItem>> out;
  for (const Heard& text : texts) out.push_back(text.media);
  return out;
}

// In as many turns as the environment asks for. Episodes of a group begin alike, at whatever step they are asked again.
std::vector<Answer> AnswerRounds::played(Actors& actors, const std::vector<Json>& rows,
                                         const std::vector<Heard>& prompts, const Part& part,
                                         const Sampling& sampling) const {
  const uint64_t place = static_cast<uint64_t>(actors.step * ranks_ + rank_ / o_.sharers);
  const uint64_t seed = mix(seed_, stream_named(part.evaluation ? "evaluated episodes" : "episodes"), place);
  std::vector<EpisodeStart> starts;
  for (size_t i = 0; i < prompts.size(); ++i)
    starts.push_back(
        {.episode = static_cast<int64_t>(i),
         .row = &rows[static_cast<size_t>(part.question(i))],
         .seed = mix(seed, stream_named("episode"), static_cast<uint64_t>(part.before + part.question(i)))});
  const auto asked = [&](size_t episode, const EpisodeReply& reply) -> Heard {
    Json row = *starts[episode].row;
    if (!reply.images.empty()) row = without_media(std::move(row)), row["images"] = reply.images;
    row["messages"] = with_tags(reply);
    if (Json tools = environment_->tools(); !tools.is_null() && !row.contains("tools")) row["tools"] = std::move(tools);
    Sample question = encoder_->encode_prompt({.value = std::move(row), .origin = {}});
    return {std::move(question.ids), std::move(question.media)};
  };
  const auto between = [&](size_t episode, const EpisodeReply& reply) {
    return between_turns(*starts[episode].row, reply);
  };
  const auto model = [&](std::vector<TurnAsked> turns, const TurnSaid& said) {
    say(*actors.rollout, std::move(turns), said);
  };
  std::vector<Trajectory> all;
  {
    const Rollout::Shift shift(*actors.rollout);
    all = play(*environment_, starts, prompts, sampling,
               {.max_turns = o_.environment.max_turns,
                .max_new_tokens = sampling.max_new_tokens,
                .total = o_.environment.total_length(),
                .longest = actors.rollout->longest()},
               {.model = model,
                .in_turns = !actors.rollout->takes_more(),
                .question = asked,
                .between = between,
                .tokenizer = *tokenizer_});
  }
  actors.rollout->serve();
  std::vector<Answer> out;
  for (Trajectory& t : all) {
    Answer& answer = out.emplace_back();
    answer.rewards = {t.failed ? NAN : t.reward()};
    answer.prompt = std::move(t.prompt), answer.ids = std::move(t.ids), answer.own = std::move(t.own);
    answer.engine_logprobs = std::move(t.logprobs), answer.text = std::move(t.text), answer.cut = t.cut;
    answer.experts = std::move(t.experts), answer.media = std::move(t.media);
    answer.turns = std::move(t.turns), answer.trajectory = std::move(t.messages);
    answer.beside = std::move(t.beside);
  }
  return out;
}

// The messages as the chat template writes them behind a turn of the model, up to where its next one begins: behind the
// token that ended the turn. What the model said is not rendered for that, as its tokens stand.
Heard AnswerRounds::between_turns(const Json& row, const EpisodeReply& reply) const {
  if (reply.messages.empty()) return {};
  Json asks = without_media(row);
  asks["messages"] = user_says("a");
  Json answered = asks;
  answered["messages"].push_back({{"role", "assistant"}, {"content", "b"}});
  for (const Json& message : with_tags(reply)) answered["messages"].push_back(message);
  if (!reply.images.empty()) answered["images"] = reply.images;
  try {
    const std::vector<int32_t> before = encoder_->encode_prompt({.value = std::move(asks), .origin = {}}).ids;
    Sample whole = encoder_->encode_prompt({.value = std::move(answered), .origin = {}});
    Heard out{behind_turn(before, whole.ids, sampling_.stop_ids), std::move(whole.media)};
    for (MediaItem& item : out.media) item.begin -= std::ssize(whole.ids) - std::ssize(out.ids);
    return out;
  } catch (const Error& error) {
    if (error.at.fault != Fault::Data) throw;
    fail(Fault::Data,
         "what the environment said cannot stand behind an answer: ", json_text(reply.messages).substr(0, 200), ": ",
         error.what());
  }
}

}  // namespace apus
