// SPDX-License-Identifier: Apache-2.0
// Sound as bytes for others: 16-bit numbers of one channel, with a WAV file's head or without.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace apus {

// Of samples in [-1, 1], little end first.
std::string pcm_bytes(const std::vector<float>& samples);
std::string wav_bytes(const std::vector<float>& samples, int64_t rate);
// What stands before samples of which nobody knows yet how many will follow.
std::string open_wav_head(int64_t rate);

}  // namespace apus
