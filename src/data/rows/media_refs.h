// SPDX-License-Identifier: Apache-2.0
// Images, videos and audios of a row: how rows name them, the tags that stand for them in text,
// and what people get wrong.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/json.h"
#include "data/rows/row.h"

namespace apus {

struct MediaKind {
  const char* name;    // "image"
  const char* column;  // "images"
  const char* tag;     // "<image>"
};
inline constexpr std::array<MediaKind, 3> kMediaKinds{
    {{"image", "images", "<image>"}, {"video", "videos", "<video>"}, {"audio", "audios", "<audio>"}}};
// What others let a medium say of itself, beside its source.
inline constexpr std::array<const char*, 11> kMediaSettings{
    "max_pixels", "min_pixels", "total_pixels", "resized_height", "resized_width", "fps",
    "nframes",    "min_frames", "max_frames",   "video_start",    "video_end"};
const MediaKind* media_kind(std::string_view name);  // "image" or "image_url"; null for others

// A column's value as a list of entries, each a text (path, URL, data URI) or, for a video, a list of frames.
// Knows "path", {"path", "bytes"}, {"url"}, Anthropic's {"type": "base64", "data"}, and lists of these.
Json media_list(const Json& value, const Origin& origin, const std::string& key);
std::string media_entry(const Json& value, const Origin& origin, const std::string& key);

// A path or URL at the end of which stands an image's, video's or audio's ending.
bool looks_like_media_path(std::string_view text);
// Throws when a text's media tag is followed by a path although `images` and its like do not have an entry for the tag.
// <img>path</img>, as the first Qwen-VL wrote it, becomes <image> and an entry of the row's images.
void old_image_tags(Json& row);
void check_path_in_text(std::string_view text, const Json& row, const Origin& origin);
// Throws for a local file that cannot be opened. `root` is put before relative paths.
void check_media_readable(const Json& row, const std::string& root, const Origin& origin);
std::string resolved_media(const std::string& entry, const std::string& root);  // URLs and data stay as they are
size_t count_tags(std::string_view text, std::string_view tag);
size_t tags_in(const Json& messages, std::string_view tag);  // of messages whose contents are texts

}  // namespace apus
