// SPDX-License-Identifier: Apache-2.0
#include "models/processed_media.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "base/nearest.h"
#include "media/mosaic.h"
#include "models/spec/canvas_spec.h"
#include "models/spec/hearing_spec.h"
#include "models/spec/media_text.h"
#include "models/spec/page_spec.h"
#include "models/spec/vision_grid.h"
#include "models/towers/vision_tower.h"
#include "tensor/safetensors.h"

namespace apus {

namespace {
struct Kind {
  MediaType type;
  const char *pixels, *grid;
};
constexpr Kind kKinds[] = {{MediaType::Image, "pixel_values", "image_grid_thw"},
                           {MediaType::Video, "pixel_values_videos", "video_grid_thw"}};
// Of models that know no videos apart from images.
constexpr Kind kOneKind = {MediaType::Image, "pixel_values", "grid_thws"};
// Of those whose images have any size, in planes that are as large as the largest one.
constexpr const char* kSizes = "image_sizes";
// Of those whose patches come line by line, pixel by pixel with their colours from 0 to 1, filled up: the column and
// line of each, or -1.
constexpr const char* kPlaces[] = {"image_position_ids", "video_position_ids"};
// The same as numbers for the tower, with the lines and columns of each picture and which of its patches are none.
constexpr const char *kShapes = "spatial_shapes", *kPatchMask = "pixel_attention_mask";
constexpr const char* kFrameCounts = "num_frames_per_video";
constexpr const char* kSeconds[] = {"second_per_grid_ts", "video_second_per_grid"};
constexpr const char* kSounds = "input_features";
// Of pages: their tiles, how many each has, and these in columns and rows.
constexpr const char *kViews = "pixel_values_local", *kViewCounts = "num_local_patches", *kViewGrids = "patches_grid";
// Of those that make one row of some patches: which ones, counted over all media of a kind.
struct Pooled {
  MediaType type;
  const char *pixels, *pooling, *grids;
};
constexpr Pooled kPooled[] = {{MediaType::Image, "pixel_values", "image_token_pooling", "image_grids"},
                              {MediaType::Video, "pixel_values_videos", "video_token_pooling", "video_grids"}};
// Of pictures on canvases: their shapes by number, and which of their tiles are theirs.
constexpr const char *kCanvases = "aspect_ratio_ids", *kCanvasTiles = "aspect_ratio_mask";
constexpr const char* kCropCounts = "image_num_crops";
constexpr const char* kMasks[] = {"feature_attention_mask", "input_features_mask"};  // of older and newer processors

std::string shape_text(const at::Tensor& t) {
  std::vector<std::string> sizes;
  for (const int64_t size : t.sizes()) sizes.push_back(std::to_string(size));
  return "[" + join(sizes) + "]";
}

class ProcessedMedia {
 public:
  ProcessedMedia(const std::filesystem::path& path, const SeeingSpec& spec)
      : file_(SafetensorsFile::open(path)), spec_(spec) {
    std::vector<std::string> known(std::begin(kSeconds), std::end(kSeconds));
    for (const Kind& kind : kinds()) known.insert(known.end(), {kind.pixels, kind.grid});
    if (spec_.vision.tile > 0) known = {kOneKind.pixels};
    if (pools()) {
      known = {kCropCounts};
      for (const Pooled& kind : kPooled) known.insert(known.end(), {kind.pixels, kind.pooling, kind.grids});
    }
    if (spec_.canvas) known = {kKinds[0].pixels, kCanvases, kCanvasTiles};
    if (spec_.page) known = {kKinds[0].pixels, kViews, kViewCounts, kViewGrids};
    if (has_places()) known = {kKinds[0].pixels, kKinds[1].pixels, kPlaces[0], kPlaces[1], kFrameCounts};
    if (has_shapes()) known = {kKinds[0].pixels, kShapes, kPatchMask};
    if (spec_.vision.width == 0) known.clear();
    if (spec_.vision.width > 0 && (spec_.mosaic || spec_.video_token < 0)) known.push_back(kSizes);
    if (spec_.mosaic && spec_.video_token >= 0) known.push_back(kKinds[1].pixels);
    if (spec.hearing) known.push_back(kSounds);
    if (spec.hearing && spec.hearing->beside == 0) known.insert(known.end(), std::begin(kMasks), std::end(kMasks));
    for (const auto& [name, entry] : file_->entries())
      require(std::find(known.begin(), known.end(), name) != known.end(), Fault::Data, where(), "'", name,
              "' is none of this model's media tensors: ", join(known));
  }

  std::vector<std::shared_ptr<const MediaContent>> all() const {
    std::vector<std::shared_ptr<const MediaContent>> contents;
    if (spec_.page) {
      add_pages(contents);
      return contents;
    }
    if (spec_.canvas) {
      if (has(kKinds[0].pixels)) add_canvases(contents);
      return contents;
    }
    if (pools()) {
      for (const Pooled& kind : kPooled)
        if (has(kind.pixels)) add_pooled(kind, contents);
      return contents;
    }
    if (spec_.vision.tile > 0) add_tiles(contents);
    if (spec_.vision.tile > 0 && has(kKinds[1].pixels)) add_frames(contents);
    const bool planes = spec_.vision.tile == 0 && has(kSizes);
    if (planes) add_planes(contents);
    const bool placed = has_places();
    for (const Kind& kind : kinds())
      if (spec_.vision.tile == 0 && !planes && !spec_.vision.patch_by_pixel) add(kind, contents);
    if (has_shapes() && (has(kKinds[0].pixels) || has(kShapes))) add_shaped(contents);
    if (placed && has(kKinds[0].pixels)) add_placed(kKinds[0], kPlaces[0], {}, contents);
    if (placed && has(kKinds[1].pixels)) {
      const at::Tensor counts = tensor(kFrameCounts, 0, at::kLong);
      add_placed(kKinds[1], kPlaces[1], {counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel()},
                 contents);
    }
    if (has(kSounds) && spec_.hearing->beside > 0)
      add_filled_sounds(contents);
    else if (has(kSounds) || has(mask_name()))
      add_sounds(contents);
    return contents;
  }

 private:
  std::string where() const { return file_->path().string() + ": "; }
  std::vector<Kind> kinds() const {
    if (spec_.vision.words > 0) return {kOneKind};
    return {std::begin(kKinds), std::end(kKinds)};
  }
  bool pools() const { return spec_.vision.pooler.heads > 0; }
  bool has_places() const { return spec_.vision.patch_by_pixel && spec_.vision.table_form == TableForm::Axes; }
  bool has_shapes() const { return spec_.vision.patch_by_pixel && !has_places() && !pools(); }
  const char* mask_name() const { return kMasks[has(kMasks[1])]; }
  bool has(const char* name) const { return file_->entries().count(name) > 0; }
  // [n, columns], or [n] with 0 columns.
  at::Tensor tensor(const char* name, int64_t columns, at::ScalarType type) const {
    at::Tensor t = file_->tensor(name);
    if (columns > 0 && t.dim() == 3 && t.size(0) == 1) t = t.squeeze(0);  // of a batch of one
    if (columns == 0 && t.dim() == 2 && t.size(1) == 1) t = t.squeeze(1);
    require(t.dim() == (columns > 0 ? 2 : 1) && (columns == 0 || t.size(1) == columns), Fault::Data, where(), "'", name,
            "' should have the shape [n", columns > 0 ? ", " + std::to_string(columns) : "", "], it has ",
            shape_text(t));
    return t.to(type).contiguous();
  }
  void put(std::shared_ptr<MediaContent> content, std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    content->digest = digest_of(*content);
    tokens_for(*content, spec_);
    contents.push_back(std::move(content));
  }
  // Whole pieces of sounds [pieces, mels, frames], of which each stands for itself.
  void add_filled_sounds(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    const at::Tensor all = file_->tensor(kSounds).to(at::kFloat).contiguous();
    require(all.dim() == 3, Fault::Data, where(), "'", kSounds,
            "' should have the shape [pieces, bands, frames], it has ", shape_text(all));
    for (int64_t i = 0; i < all.size(0); ++i) {
      auto content = std::make_shared<MediaContent>();
      content->type = MediaType::Audio;
      content->shape = {all.size(1), all.size(2)};
      const float* values = all.data_ptr<float>() + i * all.stride(0);
      content->values.assign(values, values + all.stride(0));
      put(std::move(content), contents);
    }
  }
  // Spectrograms [sounds, mels, frames] and which of the frames are heard: the first ones of each.
  void add_sounds(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    const char* const mask = mask_name();
    require(has(kSounds) && has(mask), Fault::Data, where(), "'", kSounds, "' and '", mask, "' belong together; '",
            has(kSounds) ? mask : kSounds, "' is missing");
    at::Tensor all = file_->tensor(kSounds).to(at::kFloat);
    // Samples come frame by frame, and so do bands of some.
    if (spec_.hearing->comes_by_frame() && all.dim() == 3) all = all.transpose(1, 2);
    all = all.contiguous();
    const at::Tensor heard = file_->tensor(mask).to(at::kLong).contiguous();
    require(all.dim() == 3 && heard.dim() == 2 && heard.size(0) == all.size(0) && heard.size(1) == all.size(2),
            Fault::Data, where(), "'", kSounds, "' should have the shape [sounds, bands, frames] and '", mask,
            "' [sounds, frames], they have ", shape_text(all), " and ", shape_text(heard));
    for (int64_t i = 0; i < all.size(0); ++i) {
      const int64_t* own = heard.data_ptr<int64_t>() + i * heard.size(1);
      const int64_t frames = std::find(own, own + heard.size(1), 0) - own;
      require(std::all_of(own, own + frames, [](int64_t m) { return m == 1; }) &&
                  std::all_of(own + frames, own + heard.size(1), [](int64_t m) { return m == 0; }),
              Fault::Data, where(), "'", mask, "', row ", i, " should be ones, and zeros behind them");
      auto content = std::make_shared<MediaContent>();
      content->type = MediaType::Audio;
      const int64_t given = frames + spec_.hearing->tail;
      content->shape = {all.size(1), given};
      const at::Tensor given_MF =
          at::constant_pad_nd(all[i], {0, spec_.hearing->tail}).narrow(1, 0, given).contiguous();
      content->values.assign(given_MF.data_ptr<float>(), given_MF.data_ptr<float>() + given_MF.numel());
      put(std::move(content), contents);
    }
  }
  // All of each page [pages, 3, side, side], and the tiles of all of them [tiles, 3, side, side].
  void add_pages(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    if (!has(kKinds[0].pixels)) return;
    const VisionSpec& v = spec_.vision;
    const auto planes = [&](const char* name) {
      const at::Tensor all = file_->tensor(name).to(at::kFloat);
      require(all.dim() == 4 && all.size(1) == v.channels && all.size(2) == all.size(3) && all.size(2) % v.patch == 0,
              Fault::Data, where(), "'", name, "' should have the shape [views, ", v.channels,
              ", side, side] with a multiple of ", v.patch, " as side, it has ", shape_text(all));
      return all;
    };
    const at::Tensor pages = planes(kKinds[0].pixels);
    at::Tensor tiles, counts, grids;
    if (has(kViews)) {
      require(has(kViewCounts), Fault::Data, where(), "'", kViews, "' comes without '", kViewCounts, "'");
      tiles = planes(kViews), counts = tensor(kViewCounts, 0, at::kLong);
      if (has(kViewGrids)) grids = tensor(kViewGrids, 2, at::kLong);
      require(counts.size(0) == pages.size(0) && counts.sum().item<int64_t>() == tiles.size(0) &&
                  counts.ge(0).all().item<bool>() && (!grids.defined() || grids.size(0) == pages.size(0)),
              Fault::Data, where(), "'", kViewCounts, "' should say how many of the ", tiles.size(0), " tiles each of ",
              pages.size(0), " pages has");
    }
    int64_t first = 0;
    for (int64_t i = 0; i < pages.size(0); ++i) {
      auto content = std::make_shared<MediaContent>();
      const int64_t own = counts.defined() ? counts[i].item<int64_t>() : 0;
      const auto add = [&](const at::Tensor& views) {
        const at::Tensor rows = patches_of_planes(views, v).contiguous();
        content->values.insert(content->values.end(), rows.data_ptr<float>(), rows.data_ptr<float>() + rows.numel());
        const int64_t side = views.size(2) / v.patch;
        for (int64_t k = 0; k < views.size(0); ++k) content->grids.push_back({1, side, side});
      };
      if (own > 0) add(tiles.narrow(0, first, own));
      add(pages.narrow(0, i, 1));
      first += own;
      if (own > 0 && grids.defined())
        content->came_as = {grids[i][1].item<int64_t>(), grids[i][0].item<int64_t>()};
      else if (own > 0)
        content->came_as = {1, own};
      content->grid = content->grids[0];
      content->shape = {std::ssize(content->values) / v.patch_numbers(), v.patch_numbers()};
      put(std::move(content), contents);
    }
  }
  // [texts, pictures, tiles, 3, side, side], of each picture the number of its shape; 0: there is none.
  void add_canvases(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    const CanvasSpec& canvas = *spec_.canvas;
    at::Tensor all = file_->tensor(kKinds[0].pixels).to(at::kFloat);
    if (all.dim() == 6) all = all.flatten(0, 1);
    const at::Tensor shapes = file_->tensor(kCanvases).to(at::kLong).flatten();
    require(all.dim() == 5 && all.size(0) == shapes.size(0) && all.size(1) == canvas.tiles, Fault::Data, where(), "'",
            kKinds[0].pixels, "' should have the shape [pictures, ", canvas.tiles,
            ", 3, side, side] with a number of '", kCanvases, "' for each, it has ", shape_text(all));
    for (int64_t i = 0; i < all.size(0); ++i) {
      const int64_t shape = shapes[i].item<int64_t>();
      if (shape == 0) continue;
      const CanvasTiles tiles = canvas.tiles_of(shape);
      const at::Tensor own = all[i].narrow(0, 0, tiles.count()).contiguous();
      auto content = std::make_shared<MediaContent>();
      content->came_as = {tiles.high, tiles.wide}, content->shape = own.sizes().vec();
      content->values.assign(own.data_ptr<float>(), own.data_ptr<float>() + own.numel());
      put(std::move(content), contents);
    }
  }
  // Which tiles are one picture's, the file does not say, and nothing depends on it: each stands for itself.
  void add_tiles(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    if (!has(kOneKind.pixels)) return;
    at::Tensor all = file_->tensor(kOneKind.pixels).to(at::kFloat).contiguous();
    if (spec_.mosaic) return add_mosaics(all, contents);
    if (all.dim() == 5) all = without_padding(all.flatten(0, 1));
    require(all.dim() == 4, Fault::Data, where(), "'", kOneKind.pixels,
            "' should have the shape [tiles, 3, side, side], it has ", shape_text(all));
    for (int64_t i = 0; i < all.size(0); ++i) {
      auto content = std::make_shared<MediaContent>();
      content->shape = {1, all.size(1), all.size(2), all.size(3)};
      const float* values = all.data_ptr<float>() + i * all.stride(0);
      content->values.assign(values, values + all.stride(0));
      put(std::move(content), contents);
    }
  }
  // Tiles of noughts fill up pictures that have fewer than others.
  static at::Tensor without_padding(const at::Tensor& tiles) {
    return tiles.index_select(0, tiles.flatten(1).ne(0).any(1).nonzero().flatten()).contiguous();
  }
  // [images, tiles, 3, side, side], and what the images were before.
  void add_mosaics(const at::Tensor& all, std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    require(has(kSizes), Fault::Data, where(), "'", kSizes, "' is missing");
    const at::Tensor sizes = tensor(kSizes, 2, at::kLong);
    require(all.dim() == 5 && all.size(0) == sizes.size(0), Fault::Data, where(), "'", kOneKind.pixels,
            "' should have the shape [images, tiles, 3, side, side] with a row of '", kSizes, "' for each, it has ",
            shape_text(all));
    for (int64_t i = 0; i < all.size(0); ++i) {
      auto content = std::make_shared<MediaContent>();
      content->came_as = {sizes[i][0].item<int64_t>(), sizes[i][1].item<int64_t>()};
      const auto [height, width] = content->came_as;
      require(height > 0 && width > 0, Fault::Data, where(), "'", kSizes, "', row ", i, " is ", height, " x ", width);
      const int64_t tiles = mosaic_squares({width, height}, *spec_.mosaic);
      require(tiles <= all.size(1), Fault::Data, where(), "'", kOneKind.pixels, "' has ", all.size(1),
              " tiles of image ", i, ", whose size asks for ", tiles);
      const at::Tensor own = all[i].narrow(0, 0, tiles).contiguous();
      content->shape = own.sizes().vec();
      content->values.assign(own.data_ptr<float>(), own.data_ptr<float>() + own.numel());
      put(std::move(content), contents);
    }
  }
  // Squares [squares, patches, numbers of a patch, pixel by pixel], and rows of [rows, patches of a row] of which
  // each medium has as many as its grid says: two grids of a picture's, or a video's frames and one.
  void add_pooled(const Pooled& kind, std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    const bool pictures = kind.type == MediaType::Image;
    for (const char* name : {kind.pooling, kind.grids, pictures ? kCropCounts : kind.grids})
      require(has(name), Fault::Data, where(), "'", kind.pixels, "' comes without '", name, "'");
    const VisionSpec& v = spec_.vision;
    const int64_t square = v.table_side * v.table_side;
    const at::Tensor pixels = file_->tensor(kind.pixels).to(at::kFloat);
    const at::Tensor pooling = file_->tensor(kind.pooling).to(at::kLong).contiguous();
    const at::Tensor grids = tensor(kind.grids, pictures ? 4 : 3, at::kLong);
    const at::Tensor squares = pictures ? tensor(kCropCounts, 0, at::kLong) : grids.select(1, 0).contiguous();
    require(pixels.dim() == 3 && pixels.size(1) == square && pixels.size(2) == v.patch_numbers() &&
                pooling.dim() == 2 && squares.size(0) == grids.size(0) && squares.ge(1).all().item<bool>() &&
                squares.sum().item<int64_t>() == pixels.size(0),
            Fault::Data, where(), "'", kind.pixels, "' should have the shape [squares, ", square, ", ",
            v.patch_numbers(), "] with as many squares as its media have, and '", kind.pooling,
            "' [rows, patches]; they have ", shape_text(pixels), " and ", shape_text(pooling));
    const at::Tensor by_colour = pixels.reshape({-1, v.patch, v.patch, v.channels}).permute({0, 3, 1, 2}).contiguous();
    int64_t first = 0, first_row = 0;
    for (int64_t i = 0; i < grids.size(0); ++i) {
      const auto g = [&](int64_t k) { return grids[i][k].item<int64_t>(); };
      const int64_t rows = pictures ? g(0) * g(1) + g(2) * g(3) : g(0) * g(1) * g(2);
      const int64_t own = squares[i].item<int64_t>(), patches = own * square, before = first * square;
      require(rows > 0 && rows <= pooling.size(0) - first_row, Fault::Data, where(), "'", kind.grids, "', row ", i,
              " asks for ", rows, " rows, and '", kind.pooling, "' has ", pooling.size(0) - first_row, " left");
      auto content = std::make_shared<MediaContent>();
      content->type = kind.type, content->shape = {patches, v.patch_numbers()};
      content->grids.assign(static_cast<size_t>(own), {1, v.table_side, v.table_side});
      content->grid = content->grids[0];
      const float* values = by_colour.data_ptr<float>() + before * v.patch_numbers();
      content->values.assign(values, values + patches * v.patch_numbers());
      content->pool = pooling.size(1);
      for (const int64_t n : std::span(pooling.data_ptr<int64_t>() + first_row * content->pool,
                                       static_cast<size_t>(rows * content->pool)))
        content->pooled.push_back(n < 0 ? -1 : static_cast<int32_t>(std::clamp<int64_t>(n - before, -2, patches)));
      put(std::move(content), contents);
      first += own, first_row += rows;
    }
  }
  // [videos, frames, 3, side, side].
  void add_frames(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    const at::Tensor all = file_->tensor(kKinds[1].pixels).to(at::kFloat).contiguous();
    require(all.dim() == 5, Fault::Data, where(), "'", kKinds[1].pixels,
            "' should have the shape [videos, frames, 3, side, side], it has ", shape_text(all));
    for (int64_t i = 0; i < all.size(0); ++i) {
      auto content = std::make_shared<MediaContent>();
      content->type = MediaType::Video;
      content->shape = {all.size(1), all.size(2), all.size(3), all.size(4)};
      const float* values = all.data_ptr<float>() + i * all.stride(0);
      content->values.assign(values, values + all.stride(0));
      put(std::move(content), contents);
    }
  }
  void add_planes(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    require(has(kOneKind.pixels), Fault::Data, where(), "'", kSizes, "' comes without '", kOneKind.pixels, "'");
    const at::Tensor all = file_->tensor(kOneKind.pixels).to(at::kFloat).contiguous();
    const at::Tensor sizes = tensor(kSizes, 2, at::kLong);
    const VisionSpec& v = spec_.vision;
    const int64_t step = v.patch * v.merge;
    require(all.dim() == 4 && all.size(0) == sizes.size(0) && all.size(1) == v.channels, Fault::Data, where(), "'",
            kOneKind.pixels, "' should have the shape [images, ", v.channels, ", height, width] with a row of '",
            kSizes, "' for each, it has ", shape_text(all));
    for (int64_t i = 0; i < all.size(0); ++i) {
      const int64_t height = sizes[i][0].item<int64_t>(), width = sizes[i][1].item<int64_t>();
      require(height > 0 && width > 0 && height <= all.size(2) && width <= all.size(3) && height % step == 0 &&
                  width % step == 0,
              Fault::Data, where(), "'", kSizes, "', row ", i, ": ", height, " x ", width,
              " pixels are not part of the planes, or no multiple of ", step);
      auto content = std::make_shared<MediaContent>();
      const at::Tensor rows =
          patches_of_planes(all.narrow(0, i, 1).narrow(2, 0, height).narrow(3, 0, width), v).contiguous();
      content->grid = {1, height / v.patch, width / v.patch};
      content->shape = {rows.size(0), rows.size(1)};
      content->values.assign(rows.data_ptr<float>(), rows.data_ptr<float>() + rows.numel());
      put(std::move(content), contents);
    }
  }
  void add(const Kind& kind, std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    if (!has(kind.pixels) && !has(kind.grid)) return;
    require(has(kind.pixels) && has(kind.grid), Fault::Data, where(), "'", kind.pixels, "' and '", kind.grid,
            "' belong together; '", has(kind.pixels) ? kind.grid : kind.pixels, "' is missing");
    const at::Tensor pixels = tensor(kind.pixels, spec_.vision.patch_numbers(), at::kFloat);
    const at::Tensor grids = tensor(kind.grid, 3, at::kLong);
    const std::vector<double> seconds =
        kind.type == MediaType::Video ? seconds_of(grids.size(0)) : std::vector<double>();
    int64_t first = 0;
    for (int64_t i = 0; i < grids.size(0); ++i) {
      const int64_t* g = grids.data_ptr<int64_t>() + 3 * i;
      auto content = std::make_shared<MediaContent>();
      content->type = kind.type;
      content->grid = {g[0], g[1], g[2]};
      const int64_t most = pixels.size(0) - first,
                    count = g[0] > 0 && g[1] > 0 && g[2] > 0 && g[0] <= most && g[1] <= most && g[2] <= most
                                ? patches_of(content->grid)
                                : most + 1;
      require(count <= most, Fault::Data, where(), "'", kind.grid, "', row ", i, " asks for ", g[0], " x ", g[1], " x ",
              g[2], " patches, and '", kind.pixels, "' has ", most, " left of its ", pixels.size(0));
      const float* values = pixels.data_ptr<float>() + first * pixels.size(1);
      content->shape = {count, pixels.size(1)};
      content->values.assign(values, values + count * pixels.size(1));
      if (!seconds.empty()) content->seconds_per_grid = seconds[static_cast<size_t>(i)];
      put(std::move(content), contents);
      first += count;
    }
    require(first == pixels.size(0), Fault::Data, where(), "'", kind.pixels, "' has ", pixels.size(0),
            " patches, the grids in '", kind.grid, "' take ", first);
  }
  // Patches [pictures, height x width, numbers] that come line by line, pixel by pixel: as the tower takes them.
  at::Tensor in_cells(const at::Tensor& patches, int64_t height, int64_t width) const {
    const VisionSpec& v = spec_.vision;
    return patches.reshape({-1, height / v.merge, v.merge, width / v.merge, v.merge, v.patch, v.patch, v.channels})
        .permute({0, 1, 3, 2, 4, 7, 5, 6})
        .reshape({-1, v.patch_numbers()})
        .contiguous();
  }
  // [pictures, patches, numbers] with [pictures, 2].
  void add_shaped(std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    const char* const name = kKinds[0].pixels;
    require(has(name) && has(kShapes), Fault::Data, where(), "'", name, "' and '", kShapes, "' belong together; '",
            has(name) ? kShapes : name, "' is missing");
    const at::Tensor pixels = file_->tensor(name).to(at::kFloat), shapes = tensor(kShapes, 2, at::kLong);
    const VisionSpec& v = spec_.vision;
    require(pixels.dim() == 3 && pixels.size(2) == v.patch_numbers() && pixels.size(0) == shapes.size(0), Fault::Data,
            where(), "'", name, "' should have the shape [pictures, patches, ", v.patch_numbers(), "] with a row of '",
            kShapes, "' for each, it has ", shape_text(pixels));
    for (int64_t i = 0; i < pixels.size(0); ++i) {
      const int64_t height = shapes[i][0].item<int64_t>(), width = shapes[i][1].item<int64_t>(), most = pixels.size(1);
      require(height > 0 && width > 0 && height <= most && width <= most && height * width <= most &&
                  height % v.merge == 0 && width % v.merge == 0,
              Fault::Data, where(), "'", kShapes, "', row ", i, ": ", height, " x ", width, " of at most ", most,
              " patches, in whole cells of ", v.merge, ", is wanted");
      const at::Tensor rows = in_cells(pixels.narrow(0, i, 1).narrow(1, 0, height * width), height, width);
      auto content = std::make_shared<MediaContent>();
      content->grid = {1, height, width};
      content->shape = {rows.size(0), rows.size(1)};
      content->values.assign(rows.data_ptr<float>(), rows.data_ptr<float>() + rows.numel());
      put(std::move(content), contents);
    }
  }
  // [pictures, patches, numbers] with [pictures, patches, 2]; so many of them in turn are frames of one video.
  void add_placed(const Kind& kind, const char* places, const std::vector<int64_t>& frames,
                  std::vector<std::shared_ptr<const MediaContent>>& contents) const {
    require(has(places), Fault::Data, where(), "'", kind.pixels, "' comes without '", places, "'");
    const at::Tensor pixels = file_->tensor(kind.pixels).to(at::kFloat), at = file_->tensor(places).to(at::kLong);
    const VisionSpec& v = spec_.vision;
    require(pixels.dim() == 3 && pixels.size(2) == v.patch_numbers() && at.dim() == 3 && at.size(2) == 2 &&
                at.size(0) == pixels.size(0) && at.size(1) == pixels.size(1),
            Fault::Data, where(), "'", kind.pixels, "' should have the shape [pictures, patches, ", v.patch_numbers(),
            "] and '", places, "' [pictures, patches, 2], they have ", shape_text(pixels), " and ", shape_text(at));
    const std::vector<int64_t> each =
        frames.empty() ? std::vector<int64_t>(static_cast<size_t>(pixels.size(0)), 1) : frames;
    int64_t first = 0;
    for (const int64_t count : each) {
      require(count > 0 && first + count <= pixels.size(0), Fault::Data, where(), "'", kFrameCounts, "' asks for ",
              count, " frames, and ", pixels.size(0) - first, " are left");
      const int64_t patches = at[first].select(1, 0).ge(0).sum().item<int64_t>();
      require(patches > 0, Fault::Data, where(), "'", places, "', row ", first, " has no patch");
      const at::Tensor last = at[first].narrow(0, 0, patches).amax(0);
      const int64_t width = last[0].item<int64_t>() + 1, height = last[1].item<int64_t>() + 1, m = v.merge;
      require(width * height == patches && width % m == 0 && height % m == 0, Fault::Data, where(), "'", places,
              "', row ", first, ": ", patches, " patches are no ", height, " x ", width, " in whole cells of ", m);
      // Towers with blocks read numbers from -1 to 1, which the original makes of these itself.
      at::Tensor own = pixels.narrow(0, first, count).narrow(1, 0, patches);
      if (v.layers > 0) own = own.mul(2).sub(1);
      const at::Tensor rows = in_cells(own, height, width);
      auto content = std::make_shared<MediaContent>();
      content->type = kind.type;
      content->grid = {count, height, width};
      content->shape = {rows.size(0), rows.size(1)};
      content->values.assign(rows.data_ptr<float>(), rows.data_ptr<float>() + rows.numel());
      put(std::move(content), contents);
      first += count;
    }
  }
  std::vector<double> seconds_of(int64_t videos) const {
    for (const char* name : kSeconds) {
      if (!has(name)) continue;
      const at::Tensor t = tensor(name, 0, at::kDouble);
      require(t.size(0) == videos, Fault::Data, where(), "'", name, "' has ", t.size(0), " numbers for ", videos,
              " videos");
      return {t.data_ptr<double>(), t.data_ptr<double>() + videos};
    }
    return {};
  }
  static std::string digest_of(const MediaContent& c) {
    std::string bytes = str(static_cast<int>(c.type), " ", c.grid[0], " ", c.grid[1], " ", c.grid[2], " ", c.came_as[0],
                            " ", c.came_as[1], " ", c.seconds_per_grid, " ", c.pool, "\n");
    bytes.append(reinterpret_cast<const char*>(c.pooled.data()), c.pooled.size() * sizeof(int32_t));
    bytes.append(reinterpret_cast<const char*>(c.values.data()), c.values.size() * sizeof(float));
    return hex_digest(bytes, 16);
  }

  std::shared_ptr<SafetensorsFile> file_;
  const SeeingSpec& spec_;
};
}  // namespace

std::vector<std::shared_ptr<const MediaContent>> read_processed_media(const std::filesystem::path& file,
                                                                      const SeeingSpec& spec) {
  return ProcessedMedia(file, spec).all();
}

}  // namespace apus
