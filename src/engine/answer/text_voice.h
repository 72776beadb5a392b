// SPDX-License-Identifier: Apache-2.0
// What speaks answers, as its users (server, batch inference) see it. No tensor library here.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/answer/text_engine.h"

namespace apus {

// Which text is spoken: a prompt with its media, and the answer to it without what ends it.
struct SpokenText {
  std::vector<int32_t> prompt, answer;
  std::vector<MediaItem> media = {};
};

struct VoiceWish {
  std::string voice = "";     // empty: the first in the alphabet
  std::string language = "";  // empty: that of the text, as the voice understands it
  // How the first code of a frame is drawn, and the others.
  Sampling first = {}, rest = {};
  int64_t most_frames = 4096;
  void seed(uint64_t from) { first.seed = from, rest.seed = from + 1; }
};

class TextVoice {
 public:
  virtual ~TextVoice() = default;
  virtual std::vector<std::string> voices() const = 0;
  // How its codes are usually drawn.
  virtual VoiceWish usual() const = 0;
  // Fault::Usage where there is no such voice or language, naming those that there are.
  virtual void check(const std::string& voice, const std::string& language) const = 0;
  // Of a voice that no model answers for: what speak() takes. Fault::Usage of any other.
  virtual bool alone() const { return false; }
  virtual SpokenText text_of(const std::string& text, const std::string& instructions) const;
  // Samples at kSpeechRate in [-1, 1]; waits for them. Ends early when `stopped` says so. Thread-safe.
  virtual std::vector<float> speak(const SpokenText& text, const VoiceWish& wish,
                                   const std::function<bool()>& stopped) = 0;
};

inline SpokenText TextVoice::text_of(const std::string&, const std::string&) const {
  fail(Fault::Bug, "this voice speaks answers, not texts");
}

}  // namespace apus
