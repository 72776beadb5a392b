// SPDX-License-Identifier: Apache-2.0
// What speaks answers, as its users (server, batch inference) see it. No tensor library here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/answer/text_engine.h"

namespace apus {

// Which text is spoken: a prompt with its media, and the answer to it without what ends it.
struct SpokenText {
  std::vector<int32_t> prompt, answer;
  std::vector<MediaItem> media = {};
};

struct VoiceWish {
  std::string voice = "";  // empty: the first in the alphabet
  // How the first code of a frame is drawn, and the others: as the checkpoints' own program draws them.
  Sampling first = usual_first(), rest = usual_rest();
  int64_t most_frames = 4096;
  static Sampling usual_first() { return {.temperature = 0.9, .top_k = 50, .repetition_penalty = 1.05}; }
  static Sampling usual_rest() { return {.top_p = 0.8, .top_k = 50}; }
  void seed(uint64_t from) { first.seed = from, rest.seed = from + 1; }
};

class TextVoice {
 public:
  virtual ~TextVoice() = default;
  virtual std::vector<std::string> voices() const = 0;
  // Fault::Usage where there is no such voice, naming those that there are.
  virtual void check_voice(const std::string& voice) const = 0;
  // Samples at kSpeechRate in [-1, 1]; waits for them. Ends early when `stopped` says so. Thread-safe.
  virtual std::vector<float> speak(const SpokenText& text, const VoiceWish& wish,
                                   const std::function<bool()>& stopped) = 0;
};

}  // namespace apus
