// SPDX-License-Identifier: Apache-2.0
#include "media/smol_video.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"

namespace apus {

namespace {

// Of a video that does not say its own: 24.
double rate_or_usual(double rate) { return rate > 0 ? rate : 24; }

double known_rate(const VideoFrames& video) { return rate_or_usual(video.rate); }

// From its last frame, behind which a second is left out where one is before its first.
int64_t whole_seconds(const VideoFrames& video) {
  const auto last = static_cast<double>(video.at.empty() ? std::ssize(video.frames) - 1 : video.at.back());
  const bool skips = !video.at.empty() && video.at.front() > 0;
  return static_cast<int64_t>(skips ? last / known_rate(video) + 1 : (last + 1) / known_rate(video));
}

// Below 1000, as the number of frames is.
std::string number_in_words(int64_t n) {
  static constexpr const char* kSmall[] = {
      "zero", "one",    "two",    "three",    "four",     "five",    "six",     "seven",     "eight",    "nine",
      "ten",  "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
  static constexpr const char* kTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                          "fifty", "sixty", "seventy", "eighty", "ninety"};
  if (n < 20) return kSmall[n];
  if (n < 100) return str(kTens[n / 10], n % 10 > 0 ? str("-", kSmall[n % 10]) : "");
  return str(kSmall[n / 100 % 10], " hundred", n % 100 > 0 ? " and " + number_in_words(n % 100) : "");
}

}  // namespace

std::vector<int64_t> smol_frames(int64_t total, double rate, double wanted, int64_t most) {
  rate = rate_or_usual(rate);
  require(total > 0, Fault::Data, "a video without frames");
  const double seconds = static_cast<double>(total) / rate;
  const int64_t count = std::max<int64_t>(1, std::min(static_cast<int64_t>(std::nearbyint(wanted * seconds)), most));
  int64_t first = 0, last = total - 1;
  if (seconds - 2 > static_cast<double>(most) * wanted) {
    first = static_cast<int64_t>(rate);
    last = std::min(last, static_cast<int64_t>(static_cast<double>(total) - rate));
    if (first >= last) first = 0, last = total - 1;
  }
  std::vector<int64_t> at;
  const double step = count > 1 ? static_cast<double>(last - first) / static_cast<double>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = i > 0 && i == count - 1 ? last : first + static_cast<int64_t>(static_cast<double>(i) * step);
    if (at.empty() || number != at.back()) at.push_back(number);
  }
  return at;
}

std::string smol_intro(const VideoFrames& video) {
  const auto seconds = static_cast<int>(whole_seconds(video));
  char length[48];
  std::snprintf(length, sizeof length, "%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
  return str("You are provided the following series of ", number_in_words(std::ssize(video.frames)), " frames from a ",
             length, " [H:MM:SS] video.\n");
}

std::string smol_time(const VideoFrames& video, size_t number) {
  const int64_t at = number < video.at.size() ? video.at[number] : static_cast<int64_t>(number);
  const auto seconds = static_cast<int>(static_cast<double>(at) / known_rate(video));
  char text[48];
  std::snprintf(text, sizeof text, "%02d:%02d", seconds / 60, seconds % 60);
  return text;
}

}  // namespace apus
