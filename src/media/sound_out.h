// SPDX-License-Identifier: Apache-2.0
// A sound of one channel as the bytes of a file, whole or piece by piece: WAV and bare samples by ourselves, other
// forms where FFmpeg's libraries are at hand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace apus {

// `form`: wav, pcm, mp3, opus, aac, flac.
const char* sound_media_type(const std::string& form);  // "audio/mpeg"
// What OpenAI's clients expect where nothing is said: mp3, or wav where that cannot be made.
std::string usual_sound_form();

class SoundOut {
 public:
  virtual ~SoundOut() = default;
  // Samples in [-1, 1] -> bytes, the file's head before the first ones.
  virtual std::string add(const std::vector<float>& samples) = 0;
  virtual std::string end() = 0;
};
// Fault::Usage where the form cannot be made here, with why.
std::unique_ptr<SoundOut> open_sound_out(const std::string& form, int64_t rate);

// All of it at once; a WAV file's head says then how long it is.
std::string sound_bytes(const std::string& form, const std::vector<float>& samples, int64_t rate);

}  // namespace apus
