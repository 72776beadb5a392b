// SPDX-License-Identifier: Apache-2.0
#include "algos/answer_record.h"

#include <cmath>

#include "base/error.h"

namespace apus {

Json answer_record(const Answer& a, const char* flag) {
  require(a.media.empty(), Fault::Usage, flag,
          " keeps answers as tokens, and a question has images, videos or sounds: leave it away");
  Json turns = Json::array(), rewards = Json::array();
  for (const Trajectory::Turn& turn : a.turns) turns.push_back({turn.end, turn.reward});
  for (const double reward : a.rewards) rewards.push_back(std::isnan(reward) ? Json() : Json(reward));
  return {{"prompt", a.prompt}, {"ids", a.ids},          {"logprobs", a.engine_logprobs},    {"text", a.text},
          {"own", a.own},       {"turns", turns},        {"trajectory", a.trajectory},       {"cut", a.cut},
          {"group", a.group},   {"reward", a.reward},    {"greedy_reward", a.greedy_reward}, {"rewards", rewards},
          {"open", a.open},     {"versions", a.versions}};
}

Answer answer_of_record(const Json& kept) {
  Answer a;
  a.prompt = kept.at("prompt").get<std::vector<int32_t>>(), a.ids = kept.at("ids").get<std::vector<int32_t>>();
  a.engine_logprobs = kept.at("logprobs").get<std::vector<float>>(), a.text = kept.at("text").get<std::string>();
  a.own = kept.at("own").get<std::vector<uint8_t>>(), a.trajectory = kept.at("trajectory");
  for (const Json& turn : kept.at("turns"))
    a.turns.push_back({.end = turn.at(0).get<size_t>(), .reward = turn.at(1).get<double>()});
  a.cut = kept.at("cut").get<bool>(), a.group = kept.at("group").get<int64_t>();
  a.reward = kept.at("reward").get<double>(), a.greedy_reward = kept.at("greedy_reward").get<double>();
  for (const Json& reward : kept.at("rewards")) a.rewards.push_back(reward.is_null() ? NAN : reward.get<double>());
  a.open = kept.value("open", false), a.versions = kept.value("versions", std::vector<int64_t>());
  return a;
}

}  // namespace apus
