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

std::vector<ImageSize> read_sizes(const Json& config, const char* key, int64_t side, bool width_first) {
  const char* const form = width_first ? "[width, height]" : "[height, width]";
  const Json sizes = config.value(key, Json::array());
  require(sizes.is_array() && !sizes.empty(), Fault::Model, "config.json: '", key, "' is missing: the sizes, as ", form,
          ", of pictures in tiles");
  std::vector<ImageSize> out;
  for (const Json& each : sizes) {
    const bool pair = each.is_array() && each.size() == 2 && each[0].is_number_integer() && each[1].is_number_integer();
    ImageSize size = pair ? ImageSize{each[0].get<int64_t>(), each[1].get<int64_t>()} : ImageSize{};
    if (!width_first) std::swap(size.width, size.height);
    require(size.width > 0 && size.height > 0 && size.width % side == 0 && size.height % side == 0 &&
                std::max(size.width, size.height) <= 64 * side,
            Fault::Model, "config.json: ", key, ": ", json_text(each), " is no ", form, " of multiples of the tower's ",
            side, " pixels");
    out.push_back(size);
  }
  return out;
}
}  // namespace

MosaicForm read_mosaic(const Json& config, int64_t side, int64_t cells) {
  MosaicForm form{.sizes = {}, .side = side, .cells = cells};
  form.sizes = read_sizes(config, "image_grid_pinpoints", side, /*width_first=*/false);
  if (config.value("model_type", "") != "llava_onevision") return form;
  const std::string start = "anyres_max_", aspect = config.value("vision_aspect_ratio", start + "9");
  const auto most = aspect.starts_with(start) ? aspect.substr(start.size()) : "";
  const auto [end, error] = std::from_chars(most.data(), most.data() + most.size(), form.most_squares);
  require(error == std::errc() && end == most.data() + most.size() && form.most_squares > 0, Fault::Model,
          "config.json: vision_aspect_ratio '", aspect, "' is not supported, only anyres_max_9 and its like");
  return form;
}

MosaicForm read_own_mosaic(const Json& config, int64_t side, int64_t cells) {
  return {.sizes = read_sizes(config, "image_grid_pinpoints", side, /*width_first=*/true),
          .side = side,
          .cells = cells,
          .cut_as_it_comes = true};
}

bool is_deepseek_vl2(const Json& config) {
  const Json vision = config.value("vision_config", Json::object());
  return vision.is_object() && !vision.value("width", Json()).is_object();
}

MosaicForm read_squares_in_lines(const Json& config) {
  const auto whole = [&](const char* part, const char* key, int64_t otherwise) {
    const Json said = config.value(part, Json::object());
    return said.is_object() && said.contains(key) && said[key].is_number_integer() ? said[key].get<int64_t>()
                                                                                   : otherwise;
  };
  const int64_t side = whole("vision_config", "image_size", 384), patch = whole("vision_config", "patch_size", 16),
                joined = whole("projector_config", "downsample_ratio", 2);
  require(patch > 0 && joined > 0 && side >= patch && side <= 8192, Fault::Model, "config.json: squares of ", side,
          " pixels in patches of ", patch, ", ", joined, " of which a side become one: these do not fit together");
  return {.sizes = read_sizes(config, "candidate_resolutions", side, /*width_first=*/true),
          .side = side,
          .cells = (side / patch + joined - 1) / joined,
          .in_lines = true};
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
  if (!form.in_lines) return best_size(picture, form.sizes);
  const auto whole = [&](int64_t side) { return (side + form.side - 1) / form.side * form.side; };
  return {whole(picture.width), whole(picture.height)};
}
}  // namespace

MosaicCells mosaic_cells(ImageSize picture, const MosaicForm& form) {
  const ImageSize size = grid_size(picture, form);
  const int64_t columns = size.width / form.side, cells = form.cells;
  int64_t height = size.height / form.side * cells, width = columns * cells, top = 0, left = 0;
  if (const int64_t cell = 2 * form.cut_patch; cell > 0) {
    height = (picture.height + cell - 1) / cell, width = (picture.width + cell - 1) / cell;
  } else if (form.in_lines) {  // all of it is shown
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

std::vector<std::array<int64_t, 2>> mosaic_patches(ImageSize picture, const MosaicForm& form) {
  const ImageSize size = grid_size(picture, form);
  const int64_t most = form.side / form.cut_patch;
  std::vector<std::array<int64_t, 2>> out{{most, most}};
  const auto left = [&](int64_t pixels, int64_t before) { return std::min(most, (pixels - before) / form.cut_patch); };
  for (int64_t top = 0; top < size.height; top += form.side)
    for (int64_t before = 0; before < size.width; before += form.side)
      out.push_back({left(picture.height, top), left(picture.width, before)});
  return out;
}

}  // namespace apus
