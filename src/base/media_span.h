// SPDX-License-Identifier: Apache-2.0
// Which tokens of a prompt stand for an image, a video or a sound.
#pragma once

#include <cstdint>
#include <string>

namespace apus {

struct MediaSpan {
  std::string digest;  // of the content: equal digests mean equal content
  int64_t begin = 0, length = 0;
};

// What of a prompt's media a forward pass must hold at once: each of those that it has tokens of, or all of them.
enum class MediaAtOnce { Nothing, Each, All };

}  // namespace apus
