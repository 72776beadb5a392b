// SPDX-License-Identifier: Apache-2.0
#include "media/media_options.h"

#include <algorithm>
#include <cmath>
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
                                                 "INPUT_SIZE",          "VIDEO_MAX_NUM",       "FPS",
                                                 "FPS_MIN_FRAMES",      "FPS_MAX_FRAMES",      "NFRAMES",
                                                 "MODEL_SEQ_LEN",       "VIDEO_SEGMENTS",      "USE_AUDIO_IN_VIDEO",
                                                 "NUM_FRAMES",          "MAX_PARTITION",       "BASE_SIZE",
                                                 "IMAGE_SIZE",          "MAX_SLICE_NUMS"};
  return names;
}

std::string upper(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

double setting_value(const std::string& setting, const std::string& name, const std::string& text) {
  if (setting == "USE_AUDIO_IN_VIDEO") {
    const std::string word = upper(text);
    const bool yes = word == "TRUE" || word == "1";
    require(yes || word == "FALSE" || word == "0", Fault::Usage, name, " is '", text, "', and must be true or false");
    return yes;
  }
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool number = !text.empty() && *end == '\0' && value <= 1e12;
  if (setting == "FPS") {
    require(number && value > 0, Fault::Usage, name, " is '", text, "', and must be a number above 0");
    return value;
  }
  require(number && value >= 1, Fault::Usage, name, " is '", text, "', and must be a number of 1 at least");
  return std::floor(value);
}

}  // namespace

Json MediaSettings::all() const {
  Json out = Json::object();
  for (const auto& [name, value] : values_)
    if (value == std::floor(value))
      out[name] = static_cast<int64_t>(value);
    else
      out[name] = value;
  return out;
}

void MediaOptions::fields(OptionTable& v) {
  v("max_pixels", max_pixels,
    "pictures of more pixels (width x height) are made smaller before the model's own rules apply")
      .at_least(1)
      .shown_default("no limit");
  v("model_kwargs", model_kwargs,
    "settings of models that see, which the environment can give as well: {\"max_pixels\": 602112} is "
    "MAX_PIXELS=602112; known are " +
        join(known_settings()));
  v("media_cache_mb", media_cache_mb,
    "MiB of the host's memory for decoded and resized media that may come again; 0: nothing is kept")
      .at_least(0)
      .at_most(1 << 20)
      .shown_default(str(kMediaCacheMb));
  v.refuse({"norm_bbox"}, "boxes are written as the model's family writes them");
}

void MediaOptions::check() const {
  require(model_kwargs.is_null() || model_kwargs.is_object(), Fault::Usage, "--model_kwargs must be a JSON object");
  settings();
}

MediaSettings MediaOptions::settings() const {
  std::map<std::string, double> values;
  for (const std::string& name : known_settings())
    if (const char* value = std::getenv(name.c_str()); value && *value) values[name] = setting_value(name, name, value);
  if (!model_kwargs.is_object()) return MediaSettings(std::move(values));
  for (const auto& [key, value] : model_kwargs.items()) {
    const std::string name = upper(key);
    require(std::count(known_settings().begin(), known_settings().end(), name) > 0, Fault::Usage,
            "--model_kwargs: the setting ", key, " is not known; known are ", join(known_settings()));
    values[name] =
        setting_value(name, "--model_kwargs, " + key, value.is_string() ? value.get<std::string>() : json_text(value));
  }
  return MediaSettings(std::move(values));
}

}  // namespace apus
