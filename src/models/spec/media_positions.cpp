// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "media/sound_in_video.h"
#include "models/spec/media_text.h"
#include "models/spec/vision_grid.h"

namespace apus {

namespace {
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
  return {apart ? g[0] : 1, {apart ? 1 : spec.vision.steps_of(g[0]), g[1] / m, g[2] / m}};
}

// In the precision of the original, whose sums these are.
float step_in_time(int64_t step, const MediaContent& content, const SeeingSpec& spec) {
  if (spec.time == TimeRule::Steps || spec.time == TimeRule::Apart) return static_cast<float>(step);
  if (content.type == MediaType::Image) return 0;
  const auto seconds = static_cast<float>(content.seconds_per_grid > 0 ? content.seconds_per_grid : 1);
  const auto per_second = static_cast<float>(spec.positions_per_second);
  // Whole seconds, as transformers has it: of half a second nothing is left.
  if (spec.time == TimeRule::Seconds) return std::trunc(static_cast<float>(step) * std::trunc(seconds) * per_second);
  const float time = static_cast<float>(step) * seconds * per_second;
  return spec.time == TimeRule::Times ? std::trunc(time) : time;
}

class PositionWalk {
 public:
  PositionWalk(std::span<const int32_t> ids, const SeeingSpec& spec) : ids_(ids), spec_(spec) {
    for (auto& axis : out_) axis.reserve(ids.size());
  }

  MediaPositions all(std::span<const MediaItem> media) {
    for (size_t i = 0; i < media.size(); ++i) {
      const std::vector<int64_t> own = own_tokens(ids_, media[i], spec_);
      if (media[i].content->type == MediaType::Audio) continue;  // as text
      if (!has_own_sound(media[i])) {
        seen(*media[i].content, own);
        continue;
      }
      require(i + 1 < media.size() && media[i + 1].content && media[i + 1].content->type == MediaType::Audio,
              Fault::Data, "the sound of the video at token ", media[i].begin, " is missing");
      seen_and_heard(*media[i].content, own, own_tokens(ids_, media[i + 1], spec_));
      ++i;
    }
    text_up_to(std::ssize(ids_));
    return std::move(out_);
  }

 private:
  int64_t at() const { return std::ssize(out_[0]); }
  void put(float t, float h, float w) { out_[0].push_back(t), out_[1].push_back(h), out_[2].push_back(w); }
  void text_up_to(int64_t end) {
    for (; at() < end; ++next_) put(next_, next_, next_);
  }
  // Behind the tokens by which a video and a sound begin.
  bool has_own_sound(const MediaItem& item) const {
    return spec_.hearing && item.content->type == MediaType::Video && item.begin >= 2 &&
           ids_[static_cast<size_t>(item.begin - 1)] == spec_.sound_begin;
  }

  void seen(const MediaContent& content, const std::vector<int64_t>& own) {
    const Blocks blocks = blocks_of(content, spec_);
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t first = own[static_cast<size_t>(b * blocks.tokens())];
      const int64_t last = own[static_cast<size_t>((b + 1) * blocks.tokens() - 1)];
      require(last - first + 1 == blocks.tokens(), Fault::Data, "the tokens of the ", media_name(content.type),
              " from ", first, " on are interrupted by others");
      text_up_to(first);
      float largest = next_;
      for (int64_t cell = 0; cell < blocks.tokens(); ++cell)
        largest = std::max(largest, put_cell(cell, blocks.cells, content, next_));
      next_ = largest + 1;
    }
  }
  // The largest of its positions.
  float put_cell(int64_t cell, const Grid& cells, const MediaContent& content, float start) {
    const int64_t frame = cells[1] * cells[2];
    const float time = start + step_in_time(cell / frame, content, spec_);
    const float row = start + static_cast<float>(cell % frame / cells[2]);
    const float column = start + static_cast<float>(cell % cells[2]);
    put(time, row, column);
    return std::max({time, row, column});
  }

  // The two tokens before it, and the two behind it, share a place where video and sound take turns by chunks.
  void pair_of_marks() {
    const int64_t end = std::min(at() + 2, std::ssize(ids_));
    if (spec_.seconds_per_turn == 0) return text_up_to(end);
    while (at() < end) put(next_, next_, next_);
    ++next_;
  }
  void seen_and_heard(const MediaContent& video, const std::vector<int64_t>& seen, const std::vector<int64_t>& heard) {
    const Blocks blocks = blocks_of(video, spec_);
    std::vector<double> times;
    for (int64_t cell = 0; cell < blocks.tokens(); ++cell)
      times.push_back(step_in_time(cell / (blocks.cells[1] * blocks.cells[2]), video, spec_));
    text_up_to(seen[0] - 2);
    pair_of_marks();
    const float start = next_;
    for (const VideoTurn& turn : turns_of_video_and_sound(times, std::ssize(heard), positions_per_turn(spec_))) {
      float largest = 0;
      for (int64_t k = turn.first; k < turn.first + turn.count; ++k) {
        require((turn.sound ? heard : seen)[static_cast<size_t>(k)] == at(), Fault::Data, "token ", at(),
                " breaks the order in which the video at token ", seen[0], " and its sound take turns");
        const float heard_at = start + static_cast<float>(k);
        if (turn.sound) put(heard_at, heard_at, heard_at);
        largest = std::max(largest, turn.sound ? heard_at : put_cell(k, blocks.cells, video, start));
      }
      // As the original has it: what comes next follows the last turn, not the furthest position.
      next_ = largest + 1;
    }
    pair_of_marks();
  }

  std::span<const int32_t> ids_;
  const SeeingSpec& spec_;
  MediaPositions out_ = MediaPositions(3);
  float next_ = 0;  // the position that comes after all before it
};

// The first and the last of a picture's tokens stand around it, and count as text does; its lines have a token more.
MediaPositions numbered(std::span<const int32_t> ids, std::span<const MediaItem> media, const SeeingSpec& spec) {
  MediaPositions out(4, std::vector<float>(ids.size()));
  for (auto& axis : out)
    for (size_t t = 0; t < ids.size(); ++t) axis[t] = static_cast<float>(t);
  for (size_t i = 0; i < media.size(); ++i) {
    const std::vector<int64_t> own = own_tokens(ids, media[i], spec);
    const int64_t wide = media[i].content->grid[2] / spec.vision.merge + 1;
    for (int64_t cell = 0; cell < std::ssize(own) - 2; ++cell) {
      const auto t = static_cast<size_t>(own[static_cast<size_t>(cell + 1)]);
      out[1][t] = static_cast<float>(cell % wide), out[2][t] = static_cast<float>(cell / wide);
      out[3][t] = static_cast<float>(i);
    }
  }
  return out;
}
}  // namespace

MediaPositions media_positions(std::span<const int32_t> ids, std::span<const MediaItem> media, const SeeingSpec& spec) {
  if (spec.time == TimeRule::Numbered) return numbered(ids, media, spec);
  return PositionWalk(ids, spec).all(media);
}

int64_t positions_per_turn(const SeeingSpec& spec) {
  return static_cast<int64_t>(spec.positions_per_second * spec.seconds_per_turn);
}

}  // namespace apus
