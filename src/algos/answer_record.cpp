// SPDX-License-Identifier: Apache-2.0
#include "algos/answer_record.h"

#include <cmath>

#include "base/error.h"
#include "engine/answer/answer_wire.h"

namespace apus {

namespace {

Json record_of(const std::vector<Conversation::Turn>& turns) {
  Json out = Json::array();
  for (const Conversation::Turn& turn : turns) out.push_back({turn.end, turn.reward});
  return out;
}

std::vector<Conversation::Turn> turns_of(const Json& record) {
  std::vector<Conversation::Turn> out;
  for (const Json& turn : record) out.push_back({.end = turn.at(0).get<size_t>(), .reward = turn.at(1).get<double>()});
  return out;
}

Json record_of(const Conversation& c) {
  return {{"prompt", c.prompt},
          {"ids", c.ids},
          {"own", c.own},
          {"logprobs", c.logprobs},
          {"turns", record_of(c.turns)},
          {"experts", experts_as_text(c.experts)}};
}

Conversation conversation_of(const Json& record) {
  return {.prompt = record.at("prompt").get<std::vector<int32_t>>(),
          .ids = record.at("ids").get<std::vector<int32_t>>(),
          .own = record.at("own").get<std::vector<uint8_t>>(),
          .logprobs = record.at("logprobs").get<std::vector<float>>(),
          .versions = {},
          .experts = experts_of_text(record.value("experts", "")),
          .turns = turns_of(record.at("turns"))};
}

}  // namespace

Json answer_record(const Answer& a, const char* flag) {
  require(a.media.empty(), Fault::Usage, flag,
          " keeps answers as tokens, and a question has images, videos or sounds: leave it away");
  Json rewards = Json::array(), beside = Json::array();
  for (const Conversation& other : a.beside) beside.push_back(record_of(other));
  for (const double reward : a.rewards) rewards.push_back(std::isnan(reward) ? Json() : Json(reward));
  return {{"prompt", a.prompt},
          {"ids", a.ids},
          {"logprobs", a.engine_logprobs},
          {"text", a.text},
          {"own", a.own},
          {"turns", record_of(a.turns)},
          {"trajectory", a.trajectory},
          {"cut", a.cut},
          {"group", a.group},
          {"reward", a.reward},
          {"greedy_reward", a.greedy_reward},
          {"rewards", rewards},
          {"open", a.open},
          {"versions", a.versions},
          {"beside", beside},
          {"experts", experts_as_text(a.experts)}};
}

Answer answer_of_record(const Json& kept) {
  Answer a;
  a.prompt = kept.at("prompt").get<std::vector<int32_t>>(), a.ids = kept.at("ids").get<std::vector<int32_t>>();
  a.engine_logprobs = kept.at("logprobs").get<std::vector<float>>(), a.text = kept.at("text").get<std::string>();
  a.own = kept.at("own").get<std::vector<uint8_t>>(), a.trajectory = kept.at("trajectory");
  a.turns = turns_of(kept.at("turns")), a.experts = experts_of_text(kept.value("experts", ""));
  for (const Json& other : kept.value("beside", Json::array())) a.beside.push_back(conversation_of(other));
  a.cut = kept.at("cut").get<bool>(), a.group = kept.at("group").get<int64_t>();
  a.reward = kept.at("reward").get<double>(), a.greedy_reward = kept.at("greedy_reward").get<double>();
  for (const Json& reward : kept.at("rewards")) a.rewards.push_back(reward.is_null() ? NAN : reward.get<double>());
  a.open = kept.value("open", false), a.versions = kept.value("versions", std::vector<int64_t>());
  return a;
}

}  // namespace apus
