// SPDX-License-Identifier: Apache-2.0
// Pictures and sounds that layers read beside the text (DecoderSpec::pictures and sound): which tokens see which of
// them, and what the tower makes of them. Shapes: T tokens of the step, D hidden, M rows of a picture.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "models/seeing_decoder.h"
#include "models/seeing_rows.h"

namespace apus {

namespace {
constexpr int64_t kTextsEnd = std::numeric_limits<int64_t>::max();

// Of each picture of a text the token behind the last one that sees it: it is seen from its own token to that of the
// next picture, and those that stand side by side are seen together.
std::vector<int64_t> ends_of(const std::vector<MediaItem>& media) {
  std::vector<int64_t> ends(media.size(), kTextsEnd);
  for (size_t i = media.size() - 1; i-- > 0;)
    ends[i] = media[i].begin + 1 == media[i + 1].begin ? ends[i + 1] : media[i + 1].begin;
  return ends;
}

class SeenPictures {
 public:
  // `canvas`: null of sounds. `rows`: of each picture or sound.
  SeenPictures(const CanvasSpec* canvas, int64_t rows, int64_t tokens)
      : canvas_(canvas), most_rows_(rows), open_(static_cast<size_t>(tokens)) {}

  // Tokens [begin, end) of a text, of which the first stands in the step's row `first`.
  void add(const std::vector<MediaItem>& media, const std::string& adapter, int64_t begin, int64_t end, int64_t first) {
    const std::vector<int64_t> ends = ends_of(media);
    std::vector<int64_t> borders{0};
    for (const MediaItem& item : media) borders.push_back(item.begin);
    borders.push_back(kTextsEnd);
    for (size_t b = 0; b + 1 < borders.size(); ++b) {
      const int64_t from = std::max(begin, borders[b]), to = std::min(end, borders[b + 1]);
      if (from >= to) continue;
      std::vector<PicturesSeen::Part> parts;
      for (size_t i = 0; i < media.size(); ++i)
        if (b == 0)  // before all pictures: all rows of all of them, those that fill up too
          parts.push_back({number_of(media[i], adapter), most_rows_});
        else if (i < b && ends[i] > from)
          parts.push_back({number_of(media[i], adapter), rows_of(*media[i].content)});
      std::vector<int64_t>& rows = rows_of_[std::move(parts)];
      for (int64_t n = from; n < to; ++n) {
        rows.push_back(first + n - begin);
        open_[static_cast<size_t>(rows.back())] = b > 0 ? 1 : 0;
      }
    }
  }

  // Null: no token sees any.
  std::shared_ptr<const PicturesSeen> all(at::Device device) {
    if (rows_of_.empty()) return nullptr;
    std::vector<int64_t> row;
    for (const auto& [parts, rows] : rows_of_) {
      seen_.runs.push_back({std::ssize(rows), parts});
      row.insert(row.end(), rows.begin(), rows.end());
    }
    seen_.row_R = indices(row, device), seen_.rows = most_rows_;
    seen_.open_T1 = at::tensor(open_, at::kFloat).unsqueeze(1).to(device);
    return std::make_shared<const PicturesSeen>(std::move(seen_));
  }

 private:
  int64_t rows_of(const MediaContent& content) const {
    return canvas_ ? canvas_tiles(content, *canvas_).count() * canvas_->tile_rows() : most_rows_;
  }
  size_t number_of(const MediaItem& item, const std::string& adapter) {
    const auto [place, added] = numbers_.try_emplace({adapter, item.content->digest}, seen_.pictures.size());
    if (added) seen_.pictures.push_back({item.content.get(), adapter});
    return place->second;
  }

  const CanvasSpec* const canvas_;
  const int64_t most_rows_;
  PicturesSeen seen_;
  std::vector<float> open_;
  std::map<std::pair<std::string, std::string>, size_t> numbers_;
  std::map<std::vector<PicturesSeen::Part>, std::vector<int64_t>> rows_of_;
};

// The layers meet every backward pass, also of texts without pictures: ranks that sum gradients wait for each other.
std::shared_ptr<const PicturesSeen> nothing_seen(at::Device device) {
  PicturesSeen seen{.pictures = {{nullptr, ""}}, .runs = {{1, {{0, 1}}}}, .rows = 1, .idle = true};
  seen.row_R = indices({0}, device), seen.open_T1 = at::ones({1, 1}, at::TensorOptions(device).dtype(at::kFloat));
  return std::make_shared<const PicturesSeen>(std::move(seen));
}
}  // namespace

void SeeingDecoder::tell_pictures(const Inputs& in, Step& s) const {
  const int64_t tokens = in.id_T.size(0);
  SeenPictures seen(seeing().canvas.get(), shape().picture_rows, tokens);
  const std::vector<std::string> adapter = adapter_of_rows(s, tokens);
  int64_t row = 0;  // of the sequence's first token in the step
  for (size_t i = 0; i < in.media.size(); row += s.length_q[i++]) {
    if (in.media[i].empty() || s.length_q[i] == 0) continue;
    for (const MediaItem& item : in.media[i])
      require(item.content != nullptr, Fault::Usage, "an image or sound came without its content");
    require(!spec().sound || in.media[i].size() == 1, Fault::Data, "this model hears one sound in a text, and ",
            in.media[i].size(), " came with one: make a row of each");
    const int64_t begin = begin_of(s, i);
    seen.add(in.media[i], adapter.empty() ? "" : adapter[static_cast<size_t>(row)], begin, begin + s.length_q[i], row);
  }
  s.pictures = seen.all(in.id_T.device());
  if (!s.pictures && at::GradMode::is_enabled() && tokens > 0) s.pictures = nothing_seen(in.id_T.device());
}

// Leaves in the step what layers read of its pictures.
void SeeingDecoder::give_pictures(const Step& s, const at::Tensor& x_TD) const {
  const PicturesSeen& seen = *s.pictures;
  if (seen.idle) {
    s.beside->picture_RD = at::zeros({1, x_TD.size(1)}, x_TD.options());
    return;
  }
  const at::Device device = numbers_like(spec().sound.has_value()).device();
  const auto rows_of = [&](const PicturesSeen::Picture& picture) {
    const auto step_of = [&](int64_t rows) { return tower_step(s, picture.adapter, rows, device); };
    return see({picture.content}, step_of).row_MD.to(x_TD.device(), x_TD.scalar_type());
  };
  if (!s.cache) {
    std::vector<at::Tensor> rows;
    for (const PicturesSeen::Picture& picture : seen.pictures) rows.push_back(rows_of(picture));
    s.beside->picture_RD = at::cat(rows);
    return;
  }
  for (const PicturesSeen::Picture& picture : seen.pictures) {
    const std::string key = picture.adapter + "\n" + picture.content->digest;
    std::shared_ptr<PictureKeys> keys = pictures_.find(key);
    if (!keys) {
      keys = std::make_shared<PictureKeys>(PictureKeys{rows_of(picture)});
      pictures_.put(key, keys, std::ssize(seen.pictures));
    }
    s.beside->picture_keys.push_back(std::move(keys));
  }
}

}  // namespace apus
