// SPDX-License-Identifier: Apache-2.0
#include "models/spec/media_text.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "models/spec/vision_grid.h"

namespace apus {

const char* media_name(MediaType type) {
  return type == MediaType::Image ? "image" : type == MediaType::Video ? "video" : "sound";
}

namespace {
int64_t token_of(MediaType type, const SeeingSpec& spec) {
  return type == MediaType::Image ? spec.image_token : type == MediaType::Video ? spec.video_token : -1;
}

// A video whose steps stand apart is so many blocks of one step.
struct Blocks {
  int64_t count;
  Grid cells;  // of one block, merged
  int64_t tokens() const { return patches_of(cells); }
};
Blocks blocks_of(const MediaContent& content, const SeeingSpec& spec) {
  const int64_t m = spec.vision.merge;
  const Grid& g = content.grid;
  const bool apart = spec.time == TimeRule::Apart;
  return {apart ? g[0] : 1, {apart ? 1 : g[0], g[1] / m, g[2] / m}};
}

int64_t step_in_time(int64_t step, const MediaContent& content, const SeeingSpec& spec) {
  if (spec.time != TimeRule::Seconds) return step;
  if (content.type == MediaType::Image) return 0;
  // Whole seconds, as transformers has it: of half a second nothing is left.
  const auto seconds = static_cast<int64_t>(content.seconds_per_grid > 0 ? content.seconds_per_grid : 1);
  return static_cast<int64_t>(static_cast<double>(step * seconds) * spec.positions_per_second);
}
}  // namespace

int64_t tokens_for(const MediaContent& content, const SeeingSpec& spec) {
  const char* const name = media_name(content.type);
  require(content.type != MediaType::Audio, Fault::Usage, "this model sees images and videos, and does not hear");
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
  for (const MediaType type : {MediaType::Image, MediaType::Video}) {
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
  for (const auto& content : contents)
    if (content->type == MediaType::Audio) tokens_for(*content, spec);  // says so
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return items;
}

std::vector<int64_t> own_tokens(std::span<const int32_t> ids, const MediaItem& item, const SeeingSpec& spec) {
  require(item.content != nullptr, Fault::Usage, "an ", media_name(MediaType::Image),
          " or video came without its content");
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

MediaPositions media_positions(std::span<const int32_t> ids, std::span<const MediaItem> media, const SeeingSpec& spec) {
  MediaPositions out;
  for (auto& axis : out) axis.reserve(ids.size());
  int64_t at = 0, next = 0;  // token, and the position that comes after all before it
  const auto put = [&](int64_t t, int64_t h, int64_t w) {
    out[0].push_back(t), out[1].push_back(h), out[2].push_back(w), ++at;
  };
  const auto text_up_to = [&](int64_t end) {
    for (; at < end; ++next) put(next, next, next);
  };
  for (const MediaItem& item : media) {
    const std::vector<int64_t> own = own_tokens(ids, item, spec);
    const Blocks blocks = blocks_of(*item.content, spec);
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t first = own[static_cast<size_t>(b * blocks.tokens())];
      const int64_t last = own[static_cast<size_t>((b + 1) * blocks.tokens() - 1)];
      require(last - first + 1 == blocks.tokens(), Fault::Data, "the tokens of the ", media_name(item.content->type),
              " from ", first, " on are interrupted by others");
      text_up_to(first);
      int64_t largest = next;
      for (int64_t f = 0; f < blocks.cells[0]; ++f) {
        const int64_t time = next + step_in_time(f, *item.content, spec);
        largest = std::max({largest, time, next + blocks.cells[1] - 1, next + blocks.cells[2] - 1});
        for (int64_t i = 0; i < blocks.cells[1]; ++i)
          for (int64_t j = 0; j < blocks.cells[2]; ++j) put(time, next + i, next + j);
      }
      next = largest + 1;
    }
  }
  text_up_to(std::ssize(ids));
  return out;
}

}  // namespace apus
