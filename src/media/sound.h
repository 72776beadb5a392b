// SPDX-License-Identifier: Apache-2.0
// Sounds from bytes, and the spectrogram that a model hears. WAV files are read: PCM of 8 to 32 bits and floats.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace apus {

inline constexpr int64_t kSoundRate = 16000;
inline constexpr int64_t kLongestSound = 3600;  // seconds

// One channel (the mean of all) at so many samples a second, in [-1, 1]. Fault::Data for what is no WAV file or longer
// than an hour.
std::vector<float> decode_sound(std::string_view bytes, int64_t rate = kSoundRate);

// Another rate, by a windowed sinc that leaves out what the lower of the two rates cannot carry.
std::vector<float> resampled(const std::vector<float>& samples, int64_t from, int64_t to);

// Pieces of at most so many samples, one behind the other: each but the last ends where the last fifth of what it could
// be is quietest.
std::vector<std::vector<float>> cut_where_quiet(const std::vector<float>& samples, int64_t most);

// Whisper's log-mel spectrogram [mels, frames], one frame for every 160 samples. `padded` > samples: zeros behind the
// sound up to there count for its last frames, and a begun frame counts as one; else the sound is mirrored at its ends.
std::vector<float> log_mel(const std::vector<float>& samples, int64_t mels, int64_t padded, int64_t& frames);

// The Universal Speech Model's [mels, frames]: of 32 ms every 10 ms, whose high tones are lifted, the logarithm of
// sizes. A sound is filled up to 8 ms with zeros, and a begun frame counts as none.
std::vector<float> log_mel_lifted(const std::vector<float>& samples, int64_t mels, int64_t& frames);

// Kaldi's [mels, frames], as Phi-4-multimodal has it: of 25 ms every 10 ms, whose high tones are lifted, of samples as
// whole numbers of 16 bits, the logarithm of powers above 1, up to 7690 Hz. A begun frame counts as none.
std::vector<float> log_mel_of_powers(const std::vector<float>& samples, int64_t mels, int64_t& frames);

// Rows that a tower makes of so many frames which it halves three times, chunk by chunk.
inline int64_t rows_of_frames(int64_t frames, int64_t chunk) {
  return frames / chunk * ((chunk + 7) / 8) + (frames % chunk + 7) / 8;
}

// Triangles on the frequencies of a transform of so many points, [points / 2 + 1, mels], of Slaney's kind.
std::vector<double> mel_filters(int64_t mels, int64_t rate = kSoundRate, int64_t points = 400);

}  // namespace apus
