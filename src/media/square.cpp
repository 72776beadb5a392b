// SPDX-License-Identifier: Apache-2.0
#include "media/square.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace apus {

namespace {
std::optional<int64_t> number_at(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name) || !object[name].is_number_integer()) return std::nullopt;
  return object[name].get<int64_t>();
}

Json object_at(const Json& object, const char* name) {
  return object.is_object() && object.contains(name) ? object[name] : Json();
}

bool flag_at(const Json& object, const char* name, bool otherwise) {
  const Json value = object_at(object, name);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}
}  // namespace

int64_t of_tower(const MediaCheckpoint& c, const char* name, int64_t otherwise) {
  return number_at(object_at(c.config, "vision_config"), name).value_or(otherwise);
}

SquareForm::SquareForm(const MediaCheckpoint& c, const PixelScale& scale, Filter filter, int64_t side)
    : scale_(pixel_scale(c.preprocessor, scale)), filter_(pixel_filter(c.preprocessor, filter)), side_(side) {
  const Json& file = c.preprocessor;
  const Json size = object_at(file, "size"), crop = object_at(file, "crop_size");
  short_side_ = size.is_number_integer() ? size.get<int64_t>() : number_at(size, "shortest_edge");
  padded_ = flag_at(file, "do_pad", false);
  const bool cut = short_side_ && flag_at(file, "do_center_crop", true);
  const int64_t height = cut ? number_at(crop, "height").value_or(side) : number_at(size, "height").value_or(side);
  const int64_t width = cut ? number_at(crop, "width").value_or(side) : number_at(size, "width").value_or(side);
  require(height == side && width == side && (!short_side_ || (cut && *short_side_ >= side)), Fault::Model,
          "preprocessor_config.json makes pictures of ", width, " x ", height, " pixels, and the tower looks at ", side,
          " x ", side);
}

ImageSize SquareForm::whole(ImageSize size) const {
  if (padded_) size.width = size.height = std::max(size.width, size.height);
  if (!short_side_) return {side_, side_};
  const bool upright = size.width <= size.height;
  const int64_t shorter = upright ? size.width : size.height, longer = upright ? size.height : size.width;
  const auto other = static_cast<int64_t>(static_cast<double>(*short_side_ * longer) / static_cast<double>(shorter));
  return upright ? ImageSize{*short_side_, other} : ImageSize{other, *short_side_};
}

Image SquareForm::operator()(const Image& image) const {
  const ImageSize size = whole({image.width, image.height});
  const auto sized = [&](const Image& from) { return resized(from, size.width, size.height, filter_); };
  Image all;
  if (padded_ && image.width != image.height) {
    const int64_t side = std::max(image.width, image.height);
    all = sized(laid_on(image, {side, side}, (side - image.width) / 2, (side - image.height) / 2, mean_colour(scale_)));
  } else {
    all = sized(image);
  }
  if (size.width == side_ && size.height == side_) return all;
  return cropped(all, (size.width - side_) / 2, (size.height - side_) / 2, side_, side_);
}

std::shared_ptr<MediaContent> SquareForm::content(const std::vector<Image>& squares, const std::string& form) const {
  auto content = std::make_shared<MediaContent>();
  content->values = pixel_planes(squares, scale_);
  content->shape = {static_cast<int64_t>(squares.size()), 3, side_, side_};
  content->digest = content_digest(*content, str(form, ' ', form_text(scale_)), squares);
  return content;
}

std::array<uint8_t, 3> mean_colour(const PixelScale& scale) {
  std::array<uint8_t, 3> out{};
  for (size_t c = 0; c < 3; ++c) out[c] = static_cast<uint8_t>(scale.mean[c] * 255);
  return out;
}

ImageSize contained_size(ImageSize own, ImageSize ground) {
  const auto ratio = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  const auto side = [](double share, int64_t of) {
    return std::max<int64_t>(1, static_cast<int64_t>(std::nearbyint(share * static_cast<double>(of))));
  };
  const double shape = ratio(own.width, own.height), wanted = ratio(ground.width, ground.height);
  if (shape > wanted) return {ground.width, side(ratio(own.height, own.width), ground.width)};
  if (shape < wanted) return {side(ratio(own.width, own.height), ground.height), ground.height};
  return ground;
}

Image padded(const Image& image, ImageSize ground, Filter filter, std::array<uint8_t, 3> colour) {
  const ImageSize size = contained_size({image.width, image.height}, ground);
  const auto room = [](int64_t left) { return static_cast<int64_t>(std::nearbyint(static_cast<double>(left) / 2)); };
  return laid_on(resized(image, size.width, size.height, filter), ground, room(ground.width - size.width),
                 room(ground.height - size.height), colour);
}

std::shared_ptr<MediaContent> whole_and_squares(const Image& picture, int64_t side, const PixelScale& scale) {
  std::vector<Image> tiles;
  add_tiles(picture, side, side, tiles);
  auto content = std::make_shared<MediaContent>();
  content->values = planes_in_square(pixel_planes({picture}, scale), picture.height, picture.width, side);
  const std::vector<float> squares = pixel_planes(tiles, scale);
  content->values.insert(content->values.end(), squares.begin(), squares.end());
  content->shape = {1 + std::ssize(tiles), 3, side, side};
  return content;
}

Image laid_on(const Image& image, ImageSize ground, int64_t left, int64_t top, std::array<uint8_t, 3> colour) {
  Image out{ground.width, ground.height, {}};
  out.rgb.resize(static_cast<size_t>(ground.width * ground.height * 3));
  for (size_t i = 0; i < out.rgb.size(); ++i) out.rgb[i] = colour[i % 3];
  for (int64_t y = 0; y < image.height; ++y)
    std::copy_n(image.rgb.begin() + y * image.width * 3, image.width * 3,
                out.rgb.begin() + ((top + y) * ground.width + left) * 3);
  return out;
}

}  // namespace apus
