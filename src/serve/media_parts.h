// SPDX-License-Identifier: Apache-2.0
// Images, videos and sounds that come with a request: the parts of messages that name them, and which of them this
// server fetches.
#pragma once

#include <string>

#include "base/json.h"

namespace apus {

class Fields;

// A part of a message in OpenAI's, Anthropic's or Qwen's form: image_url, input_image, image, video_url, video,
// input_audio, audio_url, audio. It becomes an entry of `media`, which has a row's columns (images, videos, audios),
// and the tag that stands for it in the text. "": it is none of these.
std::string media_tag(const Fields& part, const std::string& type, Json& media);

// Those that a request lists beside its messages (images, videos, audios), as ms-swift's client does: further entries
// of `media`. Where they belong a tag in the text says.
void take_listed_media(const Fields& f, Json& media);

// What clients may name besides media that come with the request itself.
struct MediaRules {
  std::string folder;  // files below it; empty: none
  int64_t most = 32;   // in one request
};
// The media of a request as they may be read: files by their real paths. ApiError 400 for what is not allowed, and for
// more than there may be.
Json allowed_media(const Json& media, const MediaRules& rules);

}  // namespace apus
