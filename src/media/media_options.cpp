// SPDX-License-Identifier: Apache-2.0
#include "media/media_options.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "base/options.h"

namespace apus {

namespace {

const std::vector<std::string>& known_settings() {
  static const std::vector<std::string> names = {"MAX_PIXELS",          "MIN_PIXELS",          "IMAGE_MAX_TOKEN_NUM",
                                                 "IMAGE_MIN_TOKEN_NUM", "VIDEO_MAX_PIXELS",    "VIDEO_MIN_PIXELS",
                                                 "VIDEO_MAX_TOKEN_NUM", "VIDEO_MIN_TOKEN_NUM", "MAX_NUM",
                                                 "INPUT_SIZE",          "VIDEO_MAX_NUM"};
  return names;
}

int64_t setting_value(const std::string& name, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  require(!text.empty() && *end == '\0' && value >= 1 && value <= 1e12, Fault::Usage, name, " is '", text,
          "', and must be a number of 1 at least");
  return static_cast<int64_t>(value);
}

std::string upper(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

}  // namespace

void MediaOptions::fields(OptionTable& v) {
  v("max_pixels", max_pixels,
    "pictures of more pixels (width x height) are made smaller before the model's own rules apply")
      .at_least(1)
      .shown_default("no limit");
  v("model_kwargs", model_kwargs,
    "settings of models that see, which the environment can give as well: {\"max_pixels\": 602112} is "
    "MAX_PIXELS=602112; known are " +
        join(known_settings()));
  v.refuse({"norm_bbox"}, "boxes are written as the model's family writes them");
}

void MediaOptions::check() const {
  require(model_kwargs.is_null() || model_kwargs.is_object(), Fault::Usage, "--model_kwargs must be a JSON object");
  settings();
}

MediaSettings MediaOptions::settings() const {
  std::map<std::string, int64_t> values;
  for (const std::string& name : known_settings())
    if (const char* value = std::getenv(name.c_str()); value && *value) values[name] = setting_value(name, value);
  if (!model_kwargs.is_object()) return MediaSettings(std::move(values));
  for (const auto& [key, value] : model_kwargs.items()) {
    const std::string name = upper(key);
    require(std::count(known_settings().begin(), known_settings().end(), name) > 0, Fault::Usage,
            "--model_kwargs: the setting ", key, " is not known; known are ", join(known_settings()));
    values[name] =
        setting_value("--model_kwargs, " + key, value.is_string() ? value.get<std::string>() : json_text(value));
  }
  return MediaSettings(std::move(values));
}

}  // namespace apus
