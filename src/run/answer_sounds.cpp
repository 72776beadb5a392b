// SPDX-License-Identifier: Apache-2.0
#include "run/answer_sounds.h"

#include <algorithm>

#include "base/files.h"
#include "media/wav.h"
#include "models/spec/speech_spec.h"

namespace apus {

AnswerSounds::AnswerSounds(const InferOptions& options, Inference* in)
    : dir_(options.audio_dir), speaker_(options.speech.speaker), language_(options.speech.language) {
  if (!options.speech.enabled) return;
  make_writable_dir(dir_);
  voice_ = in ? open_voice(options.model, options.mesh, *in) : open_lone_voice(options.model);
  like_ = recorded_voice(*voice_, options.speech);
}

std::string AnswerSounds::keep(const std::string& name, const SpokenText& text, uint64_t seed, const StopFlag& stop) {
  VoiceWish wish = voice_->usual();
  wish.voice = speaker_, wish.like = like_, wish.language = language_, wish.seed(seed);
  const std::string path = (dir_ / (name + ".wav")).string();
  write_file_atomic(path, wav_bytes(voice_->speak(text, wish, [&] { return stop.raised(); }), kSpeechRate));
  return path;
}

std::vector<int32_t> spoken_tokens(const std::vector<TokenOut>& answer, const std::vector<int32_t>& stop_ids) {
  std::vector<int32_t> ids;
  for (const TokenOut& token : answer) ids.push_back(token.id);
  if (!ids.empty() && std::find(stop_ids.begin(), stop_ids.end(), ids.back()) != stop_ids.end()) ids.pop_back();
  return ids;
}

}  // namespace apus
