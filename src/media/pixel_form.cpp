// SPDX-License-Identifier: Apache-2.0
#include "media/pixel_form.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "media/processor.h"

namespace apus {

namespace {

std::array<double, 3> three_numbers(const Json& file, const char* name, const std::array<double, 3>& usual) {
  if (!file.is_object() || !file.contains(name) || file[name].is_null()) return usual;
  const Json& list = file[name];
  require(list.is_array() && list.size() == 3, Fault::Model, "preprocessor_config.json: ", name,
          " must hold three numbers");
  std::array<double, 3> out{};
  for (size_t c = 0; c < 3; ++c) {
    require(list[c].is_number(), Fault::Model, "preprocessor_config.json: ", name, " must hold three numbers");
    out[c] = list[c].get<double>();
  }
  return out;
}

std::optional<int64_t> pixels_at(const Json& file, const char* name) {
  if (!file.is_object() || !file.contains(name) || !file[name].is_number()) return std::nullopt;
  return file[name].get<int64_t>();
}

}  // namespace

PixelScale pixel_scale(const Json& preprocessor, const PixelScale& usual) {
  PixelScale scale{three_numbers(preprocessor, "image_mean", usual.mean),
                   three_numbers(preprocessor, "image_std", usual.deviation)};
  for (const double d : scale.deviation)
    require(d > 0, Fault::Model, "preprocessor_config.json: image_std must be above 0");
  return scale;
}

Filter pixel_filter(const Json& preprocessor, Filter usual) {
  const auto number = pixels_at(preprocessor, "resample");
  require(!number || (*number >= 1 && *number <= 3), Fault::Model, "preprocessor_config.json: resample ",
          number.value_or(0), " is not known here; 1 (Lanczos), 2 (bilinear) and 3 (bicubic) are");
  constexpr Filter kNumbers[] = {Filter::Lanczos, Filter::Bilinear, Filter::Bicubic};
  return number ? kNumbers[*number - 1] : usual;
}

SizeLimits size_limits(const Json& preprocessor, const MediaSettings& settings, const std::string& kind,
                       const SizeLimits& usual) {
  SizeLimits limits = usual;
  if (preprocessor.is_object() && preprocessor.contains("size")) {
    limits.min_pixels = pixels_at(preprocessor["size"], "shortest_edge").value_or(limits.min_pixels);
    limits.max_pixels = pixels_at(preprocessor["size"], "longest_edge").value_or(limits.max_pixels);
  }
  limits.min_pixels = pixels_at(preprocessor, "min_pixels").value_or(limits.min_pixels);
  limits.max_pixels = pixels_at(preprocessor, "max_pixels").value_or(limits.max_pixels);
  const int64_t area = limits.factor * limits.factor;
  const auto set = [&](const std::string& bound, int64_t& pixels) {
    const std::string of_pixels = (kind == "VIDEO" ? "VIDEO_" : "") + bound + "_PIXELS";
    if (const auto tokens = settings.get(kind + "_" + bound + "_TOKEN_NUM"))
      pixels = *tokens * area;
    else if (const auto given = settings.get(of_pixels))
      pixels = *given / area * area;
  };
  set("MAX", limits.max_pixels);
  set("MIN", limits.min_pixels);
  require(limits.max_pixels >= area, Fault::Usage, "at most ", limits.max_pixels, " pixels of ",
          kind == "VIDEO" ? "a frame" : "an image", ", but one token stands for ", area, " already: raise MAX_PIXELS");
  require(limits.min_pixels <= limits.max_pixels, Fault::Usage, "at least ", limits.min_pixels, " pixels and at most ",
          limits.max_pixels, ": lower MIN_PIXELS or raise MAX_PIXELS");
  return limits;
}

std::string form_text(const PixelScale& scale) {
  std::string text;
  for (size_t c = 0; c < 3; ++c) text += str(scale.mean[c], '/', scale.deviation[c], ' ');
  return text;
}

int64_t fill_with_patches(MediaContent& content, const std::vector<Image>& pictures, const PatchForm& form,
                          const PixelScale& scale, const char* family) {
  PatchGrid grid;
  content.values = patch_rows(pictures, form, scale, grid);
  content.shape = {grid.patches(), form.numbers()};
  content.grid = {grid.time, grid.height, grid.width};
  content.digest = content_digest(content, str(family, ' ', form.patch, ' ', form_text(scale)), pictures);
  return grid.patches() / (form.merge * form.merge);
}

std::vector<int64_t> fill_with_pictures(MediaContent& content, const std::vector<Image>& pictures,
                                        const PatchForm& form, const PixelScale& scale, const char* family) {
  std::vector<int64_t> tokens;
  for (const Image& picture : pictures) {
    PatchGrid grid;
    const std::vector<float> values = patch_rows({picture}, form, scale, grid);
    content.values.insert(content.values.end(), values.begin(), values.end());
    content.grids.push_back({grid.time, grid.height, grid.width});
    tokens.push_back(grid.patches() / (form.merge * form.merge));
  }
  content.grid = content.grids[0];
  content.shape = {std::ssize(content.values) / form.numbers(), form.numbers()};
  content.digest = content_digest(content, str(family, ' ', form.patch, ' ', form_text(scale)), pictures);
  return tokens;
}

}  // namespace apus
