// SPDX-License-Identifier: Apache-2.0
#include "media/mosaic.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace apus {

namespace {
double as_double(int64_t n) { return static_cast<double>(n); }

// Python's int(round(x, 7)): a product that is a whole number but for its last bits is that number.
int64_t whole_of(double x, const MosaicForm& form) {
  return static_cast<int64_t>(form.cut_as_it_comes ? x : std::nearbyint(x * 1e7) / 1e7);
}
}  // namespace

MosaicForm read_mosaic(const Json& config, int64_t side, int64_t cells) {
  MosaicForm form{.sizes = {}, .side = side, .cells = cells};
  const Json sizes = config.value("image_grid_pinpoints", Json::array());
  require(sizes.is_array() && !sizes.empty(), Fault::Model,
          "config.json: 'image_grid_pinpoints' is missing: the sizes, as [height, width], of pictures in tiles");
  for (const Json& each : sizes) {
    const bool pair = each.is_array() && each.size() == 2 && each[0].is_number_integer() && each[1].is_number_integer();
    const ImageSize size = pair ? ImageSize{each[1].get<int64_t>(), each[0].get<int64_t>()} : ImageSize{};
    require(size.width > 0 && size.height > 0 && size.width % side == 0 && size.height % side == 0 &&
                std::max(size.width, size.height) <= 64 * side,
            Fault::Model, "config.json: image_grid_pinpoints: ", json_text(each),
            " is no [height, width] of multiples of the tower's ", side, " pixels");
    form.sizes.push_back(size);
  }
  if (config.value("model_type", "") != "llava_onevision") return form;
  const std::string start = "anyres_max_", aspect = config.value("vision_aspect_ratio", start + "9");
  const auto most = aspect.starts_with(start) ? aspect.substr(start.size()) : "";
  const auto [end, error] = std::from_chars(most.data(), most.data() + most.size(), form.most_squares);
  require(error == std::errc() && end == most.data() + most.size() && form.most_squares > 0, Fault::Model,
          "config.json: vision_aspect_ratio '", aspect, "' is not supported, only anyres_max_9 and its like");
  return form;
}

MosaicForm read_own_mosaic(const Json& config, int64_t side, int64_t cells) {
  Json turned = {{"image_grid_pinpoints", config.value("image_grid_pinpoints", Json())}};
  if (Json& sizes = turned["image_grid_pinpoints"]; sizes.is_array())
    for (Json& each : sizes)
      if (each.is_array() && each.size() == 2) std::swap(each[0], each[1]);
  MosaicForm form = read_mosaic(turned, side, cells);
  form.cut_as_it_comes = true;
  return form;
}

ImageSize best_size(ImageSize picture, const std::vector<ImageSize>& sizes) {
  ImageSize best = sizes.front();
  int64_t most = 0, least_filling = INT64_MAX;
  for (const ImageSize& size : sizes) {
    const double scale =
        std::min(as_double(size.width) / as_double(picture.width), as_double(size.height) / as_double(picture.height));
    const auto width = static_cast<int64_t>(as_double(picture.width) * scale),
               height = static_cast<int64_t>(as_double(picture.height) * scale);
    const int64_t shown = std::min(width * height, picture.width * picture.height);
    const int64_t filling = size.width * size.height - shown;
    if (shown < most || (shown == most && filling >= least_filling)) continue;
    most = shown, least_filling = filling, best = size;
  }
  return best;
}

ImageSize fitted_size(ImageSize picture, ImageSize within) {
  const double across = as_double(within.width) / as_double(picture.width),
               down = as_double(within.height) / as_double(picture.height);
  const auto side = [](int64_t length, double scale, int64_t most) {
    return std::min(static_cast<int64_t>(std::ceil(as_double(length) * scale)), most);
  };
  if (across < down) return {within.width, side(picture.height, across, within.height)};
  return {side(picture.width, down, within.width), within.height};
}

namespace {
// Of all squares of the grid together.
ImageSize grid_size(ImageSize picture, const MosaicForm& form) {
  return form.whole_last ? picture : best_size(picture, form.sizes);
}
}  // namespace

MosaicCells mosaic_cells(ImageSize picture, const MosaicForm& form) {
  const ImageSize size = grid_size(picture, form);
  const int64_t columns = size.width / form.side, cells = form.cells;
  int64_t height = size.height / form.side * cells, width = columns * cells, top = 0, left = 0;
  if (form.whole_last) {  // all of it is shown
  } else if (as_double(picture.width) / as_double(picture.height) > as_double(width) / as_double(height)) {
    const int64_t own = whole_of(as_double(picture.height) * (as_double(width) / as_double(picture.width)), form);
    top = (height - own) / 2;
  } else {
    const int64_t own = whole_of(as_double(picture.width) * (as_double(height) / as_double(picture.height)), form);
    left = (width - own) / 2;
  }
  MosaicCells out;
  out.height = out.to_height = height - 2 * top, out.width = out.to_width = width - 2 * left;
  for (int64_t y = top; y < height - top; ++y)
    for (int64_t x = left; x < width - left; ++x) {
      const int64_t square = 1 + y / cells * columns + x / cells;
      out.row.push_back((square * cells + y % cells) * cells + x % cells);
    }
  const double ratio = form.most_squares > 0
                           ? std::sqrt(as_double(out.height * out.width) / as_double(form.most_squares * cells * cells))
                           : 0;
  if (ratio > 1.1) {
    out.to_height = static_cast<int64_t>(std::floor(as_double(out.height) / ratio));
    out.to_width = static_cast<int64_t>(std::floor(as_double(out.width) / ratio));
  }
  return out;
}

int64_t mosaic_squares(ImageSize picture, const MosaicForm& form) {
  const ImageSize size = grid_size(picture, form);
  return 1 + (size.width / form.side) * (size.height / form.side);
}

}  // namespace apus
