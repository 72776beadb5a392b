// SPDX-License-Identifier: Apache-2.0
#include "models/spec/media_text.h"

#include <algorithm>

#include "base/error.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/vision_grid.h"

namespace apus {

const char* media_name(MediaType type) {
  return type == MediaType::Image ? "image" : type == MediaType::Video ? "video" : "sound";
}

int64_t token_of(MediaType type, const SeeingSpec& spec) {
  return type == MediaType::Image ? spec.image_token : type == MediaType::Video ? spec.video_token : spec.sound_token;
}

namespace {
int64_t tokens_of_sound(const MediaContent& content, const SeeingSpec& spec) {
  require(spec.hearing != nullptr, Fault::Usage, "this model sees images and videos, and does not hear");
  const auto& shape = content.shape;
  require(shape.size() == 2 && shape[0] == spec.hearing->mels, Fault::Data, "the sound has ",
          shape.empty() ? 0 : shape[0], " bands, this model hears ", spec.hearing->mels);
  const int64_t tokens = shape[1] > 0 && shape[1] < int64_t{1} << 30 ? spec.hearing->tokens(shape[1]) : 0;
  require(tokens > 0, Fault::Data, "a sound of ", shape[1], " frames of 10 ms is too short to be heard");
  return tokens;
}
}  // namespace

int64_t tokens_for(const MediaContent& content, const SeeingSpec& spec) {
  const char* const name = media_name(content.type);
  if (content.type == MediaType::Audio) return tokens_of_sound(content, spec);
  const Grid& g = content.grid;
  const int64_t m = spec.vision.merge;
  constexpr int64_t kLargest = 1 << 20;
  require(std::all_of(g.begin(), g.end(), [](int64_t n) { return n > 0 && n < kLargest; }) && g[1] % m == 0 &&
              g[2] % m == 0,
          Fault::Data, "the ", name, "'s grid of ", g[0], " x ", g[1], " x ", g[2],
          " patches (time, height, width) cannot be; height and width are multiples of ", m);
  require(content.shape.size() == 2 && content.shape[0] == patches_of(g), Fault::Data, "the ", name, " has ",
          content.shape.empty() ? 0 : content.shape[0], " patches, its grid of ", g[0], " x ", g[1], " x ", g[2],
          " has ", patches_of(g));
  require(content.shape[1] == spec.vision.patch_numbers(), Fault::Data, "a patch of the ", name, " has ",
          content.shape[1], " numbers, this model's patches have ", spec.vision.patch_numbers());
  return patches_of(g) / (m * m);
}

std::vector<MediaItem> placed_media(std::span<const int32_t> ids,
                                    const std::vector<std::shared_ptr<const MediaContent>>& contents,
                                    const SeeingSpec& spec) {
  std::vector<MediaItem> items;
  for (const MediaType type : {MediaType::Image, MediaType::Video, MediaType::Audio}) {
    std::vector<int64_t> places;
    for (size_t t = 0; t < ids.size(); ++t)
      if (ids[t] == token_of(type, spec)) places.push_back(static_cast<int64_t>(t));
    int64_t wanted = 0;
    for (const auto& content : contents) {
      if (content->type != type) continue;
      const int64_t first = wanted, count = tokens_for(*content, spec);
      wanted += count;
      if (wanted > std::ssize(places)) continue;
      const int64_t begin = places[static_cast<size_t>(first)], last = places[static_cast<size_t>(wanted - 1)];
      items.push_back({{content->digest, begin, last - begin + 1}, content});
    }
    require(wanted == std::ssize(places), Fault::Data, "the text has ", places.size(), " tokens of ", media_name(type),
            "s (", token_of(type, spec), "), and the ", media_name(type), "s that came with it take ", wanted);
  }
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < items.size(); ++i) {  // a video and its own sound end together
    MediaItem &before = items[i - 1], &item = items[i];
    if (item.begin >= before.begin + before.length) continue;
    const int64_t end = std::max(before.begin + before.length, item.begin + item.length);
    before.length = end - before.begin, item.length = end - item.begin;
  }
  return items;
}

std::vector<int64_t> own_tokens(std::span<const int32_t> ids, const MediaItem& item, const SeeingSpec& spec) {
  require(item.content != nullptr, Fault::Usage, "an image, video or sound came without its content");
  const int64_t end = item.begin + item.length, token = token_of(item.content->type, spec);
  require(item.begin >= 0 && item.length > 0 && end <= std::ssize(ids), Fault::Data, "the ",
          media_name(item.content->type), "'s tokens [", item.begin, ", ", end, ") lie outside its text of ",
          ids.size(), " tokens");
  std::vector<int64_t> own;
  for (int64_t t = item.begin; t < end; ++t)
    if (ids[static_cast<size_t>(t)] == token) own.push_back(t);
  const int64_t wanted = tokens_for(*item.content, spec);
  require(std::ssize(own) == wanted, Fault::Data, "the ", media_name(item.content->type), " at token ", item.begin,
          " takes ", wanted, " tokens ", token, ", and ", own.size(), " of them are there");
  return own;
}

}  // namespace apus
