// SPDX-License-Identifier: Apache-2.0
// Answers of agents, which may talk in several conversations.
#include <algorithm>

#include "algos/answers.h"

namespace apus {

int64_t Answer::said() const {
  int64_t count = own.empty() ? std::ssize(ids) : std::count(own.begin(), own.end(), 1);
  for (const Conversation& other : beside) count += std::count(other.own.begin(), other.own.end(), 1);
  return count;
}

size_t Answer::turns_taken() const {
  size_t taken = turns.size();
  for (const Conversation& other : beside) taken += other.turns.size();
  return taken;
}

Conversations conversations_of(const std::vector<Answer>& answers) {
  Conversations out;
  const auto add = [&](Answer one, size_t answer) {
    out.share.push_back(answers[answer].beside.empty()
                            ? 1
                            : static_cast<float>(one.said()) / static_cast<float>(answers[answer].said()));
    out.each.push_back(std::move(one)), out.answer.push_back(answer);
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    Answer whole = answers[i];
    const std::vector<Conversation> beside = std::exchange(whole.beside, {});
    add(whole, i);
    for (const Conversation& other : beside) {
      whole.prompt = other.prompt, whole.ids = other.ids, whole.own = other.own;
      whole.engine_logprobs = other.logprobs, whole.turns = other.turns;
      whole.experts = other.experts, whole.media = other.media;
      add(whole, i);
    }
  }
  return out;
}

}  // namespace apus
