// SPDX-License-Identifier: Apache-2.0
#include "engine/schedule/prompt_media.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

namespace {
// A digest is a hash in hex or base64: the longest in use, SHA-512 in hex, has 128 characters.
constexpr size_t kLongestDigest = 128;

// Its tokens stand among those of the video before it, or behind some of them.
bool is_sound_of(const MediaItem& video, const MediaItem& m) {
  return video.content && video.content->type == MediaType::Video && m.content && m.content->type == MediaType::Audio &&
         m.begin > video.begin && m.begin + m.length >= video.begin + video.length;
}
}  // namespace

void check_media(std::span<const MediaItem> media, int64_t prompt_tokens) {
  int64_t free_from = 0;
  for (size_t i = 0; i < media.size(); ++i) {
    const MediaItem& m = media[i];
    require(!m.digest.empty() && m.digest.size() <= kLongestDigest, Fault::Usage, "media ", i, ": its digest has ",
            m.digest.size(), " characters; give a hash of its content of 1 to ", kLongestDigest);
    require(m.begin >= 0 && m.length > 0 && m.begin < prompt_tokens && m.length <= prompt_tokens - m.begin,
            Fault::Usage, "media ", i, ": its ", m.length, " tokens from token ", m.begin,
            " on do not lie inside the prompt of ", prompt_tokens, " tokens");
    require(m.begin >= free_from || (i > 0 && is_sound_of(media[i - 1], m)), Fault::Usage, "media ", i,
            " begins at token ", m.begin, ", but the one before it ends at ", free_from,
            "; spans must follow the prompt and not overlap");
    free_from = m.begin + m.length;
  }
}

std::span<const MediaItem> media_touching(std::span<const MediaItem> media, int64_t begin, int64_t end) {
  const auto first =
      std::partition_point(media.begin(), media.end(), [&](const MediaItem& m) { return m.begin + m.length <= begin; });
  const auto last = std::partition_point(first, media.end(), [&](const MediaItem& m) { return m.begin < end; });
  return {first, last};
}

int64_t end_outside_media(std::span<const MediaItem> media, MediaAtOnce at_once, int64_t begin, int64_t end) {
  const auto outside = [&](int64_t first, int64_t last) {
    return first < end && end < last ? (first > begin ? first : last) : end;
  };
  if (at_once == MediaAtOnce::Nothing || media.empty()) return end;
  if (at_once == MediaAtOnce::All) return outside(media.front().begin, media.back().begin + media.back().length);
  for (const MediaItem& m : media_touching(media, end - 1, end))
    if (m.begin + m.length > end) return outside(m.begin, m.begin + m.length);
  return end;
}

}  // namespace apus
