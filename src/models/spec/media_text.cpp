// SPDX-License-Identifier: Apache-2.0
#include "models/spec/media_text.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "media/mosaic.h"
#include "models/spec/canvas_spec.h"
#include "models/spec/conformer_spec.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/mobile_spec.h"
#include "models/spec/page_spec.h"
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
  const bool bare = spec.hearing->front == HearingSpec::Front::Bare;
  require(shape.size() == 2 && shape[0] == spec.hearing->mels, Fault::Data, "the sound has ",
          shape.empty() ? 0 : shape[0], bare ? " samples a frame" : " bands", ", this model hears ",
          spec.hearing->mels);
  if (const auto& ears = spec.hearing->conformer)
    require(shape[1] <= 0 || ears->kept(std::min(shape[1], int64_t{1} << 30)) <= ears->tokens, Fault::Data,
            "a sound of ", shape[1], " frames of 10 ms; this model hears ", ears->tokens, " tokens at most");
  const int64_t tokens = shape[1] > 0 && shape[1] < int64_t{1} << 30 ? spec.hearing->tokens(shape[1]) : 0;
  require(tokens > 0, Fault::Data, "a sound of ", shape[1], " frames", bare ? "" : " of 10 ms",
          " is too short to be heard");
  const HearingSpec& h = *spec.hearing;
  require(h.tail == 0 || shape[1] <= h.chunk, Fault::Data, "a sound of ", shape[1] - h.tail,
          " frames of 10 ms; this model hears ", h.chunk - h.tail, " at most");
  require(h.beside == 0 || shape[1] % h.chunk == 0, Fault::Data, "a sound of ", shape[1],
          " frames of 10 ms; this model hears whole pieces of ", h.chunk);
  require(!h.beside_text || shape[1] == h.chunk, Fault::Data, "a sound of ", shape[1],
          " frames of 10 ms; this model hears ", h.chunk, ", no more and no less");
  return h.beside_text ? 1 : tokens;
}
}  // namespace

bool has_own_tokens(const SeeingSpec& spec) { return spec.image_token < -1 && spec.image_token != kTokenizersChoice; }

bool is_tower_word(int64_t token, const SeeingSpec& spec) {
  const std::vector<int64_t>& marks = spec.vision.mark_tokens;
  return token < 0 && has_own_tokens(spec) &&
         (token == spec.image_token || std::find(marks.begin(), marks.end(), token) != marks.end());
}

Grid grid_of(const MediaContent& content, const SeeingSpec& spec) {
  if (spec.vision.tile == 0 || content.type == MediaType::Audio) return content.grid;
  const auto& shape = content.shape;
  if (shape.size() != 4) return {};
  return {shape[0], shape[2] / spec.vision.patch, shape[3] / spec.vision.patch};
}

std::vector<Grid> grids_of(const MediaContent& content, const SeeingSpec& spec) {
  return content.grids.empty() ? std::vector<Grid>{grid_of(content, spec)} : content.grids;
}

namespace {
int64_t tokens_of_tiles(const MediaContent& content, const SeeingSpec& spec) {
  const auto& shape = content.shape;
  const VisionSpec& v = spec.vision;
  constexpr int64_t kLargest = 1 << 16;
  require(shape.size() == 4 && shape[0] > 0 && shape[0] < kLargest && shape[1] == v.channels, Fault::Data, "the ",
          media_name(content.type), " is no list of tiles [tiles, ", v.channels, ", side, side]");
  const int64_t step = v.patch * v.merge;
  // The last pixels of a side may be none of a patch.
  const int64_t rest = v.tile % step;
  require(shape[2] == shape[3] && shape[2] >= step && shape[2] < kLargest && shape[2] % step == rest, Fault::Data,
          "the ", media_name(content.type), "'s tiles have ", shape[3], " x ", shape[2],
          " pixels; they are squares whose side is a multiple of ", step, rest > 0 ? str(" and ", rest) : "");
  if (!spec.mosaic) return shape[0] * v.rows_of_side(shape[2] / v.patch) * v.rows_of_side(shape[3] / v.patch);
  const MosaicForm& mosaic = *spec.mosaic;
  require(shape[2] == mosaic.side, Fault::Data, "the ", media_name(content.type), "'s tiles have ", shape[2],
          " pixels a side, this model's have ", mosaic.side);
  if (content.type == MediaType::Video) return mosaic.video_rows(shape[0]);
  if (shape[0] == 1 && !mosaic.in_lines) return mosaic.cells * mosaic.cells + 1;
  const ImageSize size{content.came_as[1], content.came_as[0]};
  if (const int64_t whole = mosaic.cut_patch > 0 ? mosaic.cut_patch : mosaic.side; mosaic.in_lines)
    require(size.width % whole == 0 && size.height % whole == 0, Fault::Data, "the ", media_name(content.type), " of ",
            size.width, " x ", size.height, " pixels is not in whole squares of ", whole);
  require(size.width > 0 && size.height > 0 && shape[0] == mosaic_squares(size, mosaic), Fault::Data, "the ",
          media_name(content.type), " of ", size.width, " x ", size.height, " pixels has ", shape[0],
          " tiles, which is not what this model makes of it");
  return mosaic_cells(size, mosaic).rows(mosaic);
}
}  // namespace

namespace {
int64_t tokens_of_pooled(const MediaContent& content, int64_t patches) {
  const auto slots = std::ssize(content.pooled);
  require(content.pool > 0 && slots > 0 && slots % content.pool == 0, Fault::Data, "the ", media_name(content.type),
          " does not say which of its patches become one row");
  for (int64_t first = 0; first < slots; first += content.pool) {
    const std::span<const int32_t> own(content.pooled.data() + first, static_cast<size_t>(content.pool));
    require(std::all_of(own.begin(), own.end(), [&](int32_t p) { return p >= -1 && p < patches; }) &&
                std::any_of(own.begin(), own.end(), [](int32_t p) { return p >= 0; }),
            Fault::Data, "the ", media_name(content.type), "'s row ", first / content.pool, " is made of none of its ",
            patches, " patches, or of others");
  }
  return slots / content.pool;
}
}  // namespace

int64_t tokens_for(const MediaContent& content, const SeeingSpec& spec) {
  const char* const name = media_name(content.type);
  if (content.type == MediaType::Audio) return tokens_of_sound(content, spec);
  require(spec.vision.width > 0, Fault::Usage, "this model hears, and does not see ", name, "s");
  if (spec.canvas) return canvas_tiles(content, *spec.canvas).count() > 0 ? 1 : 0;
  if (spec.mobile) return mobile_tokens(content, *spec.mobile);
  if (spec.vision.tile > 0) return tokens_of_tiles(content, spec);
  const int64_t m = spec.vision.merge;
  constexpr int64_t kLargest = 1 << 20;
  int64_t patches = 0, rows = 0;
  for (const Grid& g : grids_of(content, spec)) {
    require(std::all_of(g.begin(), g.end(), [](int64_t n) { return n > 0 && n < kLargest; }) && g[1] % m == 0 &&
                g[2] % m == 0,
            Fault::Data, "the ", name, "'s grid of ", g[0], " x ", g[1], " x ", g[2],
            " patches (time, height, width) cannot be; height and width are multiples of ", m);
    patches += patches_of(g);
    const int64_t high = spec.vision.rows_of_side(g[1]), wide = spec.vision.rows_of_side(g[2]);
    require(g[0] == 1 || g[0] % spec.vision.time_merge == 0, Fault::Data, "the ", name, " has ", g[0],
            " frames, this model reads ", spec.vision.time_merge, " as one");
    rows +=
        spec.vision.steps_of(g[0]) * (spec.vision.lines.cell > 0 ? spec.vision.lines.rows(high, wide) : high * wide);
  }
  const Grid& g = content.grid;
  require(content.shape.size() == 2 && content.shape[0] == patches, Fault::Data, "the ", name, " has ",
          content.shape.empty() ? 0 : content.shape[0], " patches, its grid of ", g[0], " x ", g[1], " x ", g[2],
          " has ", patches);
  require(content.shape[1] == spec.vision.patch_numbers(), Fault::Data, "a patch of the ", name, " has ",
          content.shape[1], " numbers, this model's patches have ", spec.vision.patch_numbers());
  if (spec.page) return spec.page->tokens(content);
  if (spec.vision.pooler.heads > 0) return tokens_of_pooled(content, patches);
  if (const int64_t queries = spec.vision.resampler.queries; queries > 0) {
    int64_t pictures = 0;
    for (const Grid& grid : grids_of(content, spec)) pictures += grid[0];
    return pictures * queries;
  }
  return rows;
}

namespace {
// Some checkpoints leave that number to the tokenizer. It is the one id that stands in the text as often as the images
// take tokens.
int64_t image_token_in(std::span<const int32_t> ids, const std::vector<std::shared_ptr<const MediaContent>>& contents,
                       const SeeingSpec& spec) {
  int64_t wanted = 0;
  for (const auto& content : contents) wanted += tokens_for(*content, spec);
  std::map<int32_t, int64_t> often;
  for (const int32_t id : ids) ++often[id];
  std::vector<int64_t> fitting;
  for (const auto& [id, count] : often)
    if (count == wanted) fitting.push_back(id);
  require(fitting.size() == 1, Fault::Model,
          "config.json does not say which token stands for an image: put its number (that of <IMG_CONTEXT> in the "
          "tokenizer) there as \"image_token_id\". The images take ",
          wanted, " tokens, and ", fitting.size(), " ids stand in the text as often");
  return fitting[0];
}

// Tokens that begin and end media belong to them where they see what the media's own see.
void take_marks(std::span<const int32_t> ids, std::vector<MediaItem>& items, const std::vector<int64_t>& marks) {
  const auto is_mark = [&](int64_t t) {
    return std::find(marks.begin(), marks.end(), ids[static_cast<size_t>(t)]) != marks.end();
  };
  int64_t free_from = 0;
  for (MediaItem& item : items) {
    const int64_t end = item.begin + item.length;
    while (item.begin > free_from && is_mark(item.begin - 1)) --item.begin;
    item.length = end - item.begin, free_from = end;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    const int64_t free_to = i + 1 < items.size() ? items[i + 1].begin : std::ssize(ids);
    while (items[i].begin + items[i].length < free_to && is_mark(items[i].begin + items[i].length)) ++items[i].length;
  }
}
}  // namespace

std::vector<MediaItem> placed_media(std::span<const int32_t> ids,
                                    const std::vector<std::shared_ptr<const MediaContent>>& contents,
                                    const SeeingSpec& spec) {
  std::vector<MediaItem> items;
  if (spec.image_token == kTokenizersChoice && !contents.empty()) {
    SeeingSpec known = spec;
    known.image_token = known.video_token = image_token_in(ids, contents, spec);
    return placed_media(ids, contents, known);
  }
  const bool shared = spec.video_token == spec.image_token;
  for (const MediaType type : {MediaType::Image, MediaType::Video, MediaType::Audio}) {
    if (type == MediaType::Video && shared) continue;
    std::vector<int64_t> places;
    for (size_t t = 0; t < ids.size(); ++t)
      if (ids[t] == token_of(type, spec)) places.push_back(static_cast<int64_t>(t));
    int64_t wanted = 0;
    for (const auto& content : contents) {
      if (content->type != type && !(shared && type == MediaType::Image && content->type == MediaType::Video)) continue;
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
  take_marks(ids, items, spec.marks_ahead);
  return items;
}

std::vector<int64_t> own_tokens(std::span<const int32_t> ids, const MediaItem& item, const SeeingSpec& spec) {
  require(item.content != nullptr, Fault::Usage, "an image, video or sound came without its content");
  const int64_t end = item.begin + item.length;
  require(item.begin >= 0 && item.length > 0 && end <= std::ssize(ids), Fault::Data, "the ",
          media_name(item.content->type), "'s tokens [", item.begin, ", ", end, ") lie outside its text of ",
          ids.size(), " tokens");
  const int64_t said = token_of(item.content->type, spec);
  const int64_t token = said == kTokenizersChoice ? ids[static_cast<size_t>(item.begin)] : said;
  std::vector<int64_t> own;
  for (int64_t t = item.begin; t < end; ++t)
    if (ids[static_cast<size_t>(t)] == token) own.push_back(t);
  const int64_t wanted = tokens_for(*item.content, spec);
  require(std::ssize(own) == wanted, Fault::Data, "the ", media_name(item.content->type), " at token ", item.begin,
          " takes ", wanted, " tokens ", token, ", and ", own.size(), " of them are there");
  return own;
}

}  // namespace apus
