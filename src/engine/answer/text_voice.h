// SPDX-License-Identifier: Apache-2.0
// What speaks answers, as its users (server, batch inference) see it. No tensor library here.
#pragma once

#include <functional>
#include <memory>
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

struct LearntVoice;  // models/speech/talker.h

struct VoiceWish {
  std::string voice = "";                             // empty: the first in the alphabet
  std::shared_ptr<const LearntVoice> like = nullptr;  // of a voice that learns others
  std::string language = "";                          // empty: that of the text, as the voice understands it
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
  // Whether it speaks only as others do.
  virtual bool clones() const { return false; }
  // The voice of a recording at kSpeechRate, and its words ("": not known).
  // Fault::Usage of a voice that does not clone.
  virtual std::shared_ptr<const LearntVoice> learn(const std::vector<float>& samples, const std::string& words) const;
  // Samples at kSpeechRate in [-1, 1]; waits for them. Ends early when `stopped` says so. Thread-safe.
  virtual std::vector<float> speak(const SpokenText& text, const VoiceWish& wish,
                                   const std::function<bool()>& stopped) = 0;
  // The same piece by piece, each as soon as it is made; of a voice that makes speech whole there is one.
  virtual void speak_on(const SpokenText& text, const VoiceWish& wish, const std::function<bool()>& stopped,
                        const std::function<void(std::vector<float>)>& heard) {
    heard(speak(text, wish, stopped));
  }
};

inline SpokenText TextVoice::text_of(const std::string&, const std::string&) const {
  fail(Fault::Bug, "this voice speaks answers, not texts");
}

inline std::shared_ptr<const LearntVoice> TextVoice::learn(const std::vector<float>&, const std::string&) const {
  fail(Fault::Usage, "this model has voices of its own, and learns no others; Qwen3-TTS Base does");
}

}  // namespace apus
