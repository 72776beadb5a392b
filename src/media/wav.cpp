// SPDX-License-Identifier: Apache-2.0
#include "media/wav.h"

#include <algorithm>
#include <cmath>

namespace apus {

namespace {
void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 255));
}
}  // namespace

std::string pcm_bytes(const std::vector<float>& samples) {
  std::string out;
  out.reserve(2 * samples.size());
  for (const float sample : samples) {
    const auto level = static_cast<int16_t>(std::lround(std::clamp(sample, -1.0F, 1.0F) * 32767));
    put(out, static_cast<uint16_t>(level), 2);
  }
  return out;
}

namespace {
std::string head(uint64_t riff, uint64_t data, int64_t rate) {
  std::string out = "RIFF";
  put(out, riff, 4);
  out += "WAVEfmt ";
  put(out, 16, 4), put(out, /*whole numbers*/ 1, 2), put(out, /*channels*/ 1, 2);
  put(out, static_cast<uint64_t>(rate), 4), put(out, static_cast<uint64_t>(2 * rate), 4);
  put(out, /*bytes of a moment*/ 2, 2), put(out, /*bits*/ 16, 2);
  out += "data";
  put(out, data, 4);
  return out;
}
constexpr uint64_t kOpen = 0xffffffff;
}  // namespace

std::string wav_bytes(const std::vector<float>& samples, int64_t rate) {
  const std::string data = pcm_bytes(samples);
  return head(36 + data.size(), data.size(), rate) + data;
}

std::string open_wav_head(int64_t rate) { return head(kOpen, kOpen, rate); }

}  // namespace apus
