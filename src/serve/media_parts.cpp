// SPDX-License-Identifier: Apache-2.0
#include "serve/media_parts.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "data/rows/media_refs.h"
#include "media/source.h"
#include "serve/api_error.h"
#include "serve/fields.h"

namespace apus {
namespace fs = std::filesystem;

namespace {

// A medium has no settings of its own here.
void refuse_settings(const Fields& part) {
  const char* const why = "sizes and frames are set for all media, by the server's --model_kwargs and --max_pixels";
  for (const char* key : kMediaSettings) part.cannot(key, nullptr, why);
  if (part.text("detail") == "low") refuse(part.name("detail"), "'", part.name("detail"), "': ", why);
}

// A text, or an object that has it under `url`.
std::string address(const Fields& part, const char* key) {
  const Json* value = part.find(key);
  if (value && value->is_string()) return value->get<std::string>();
  if (!value || !value->is_object()) refuse(part.name(key), "'", part.name(key), "' must be a text, or hold a 'url'");
  const Fields in(*value, part.name(key) + ".");
  refuse_settings(in);
  return in.needed_text("url");
}

std::string data_uri(const std::string& type, const std::string& base64) {
  return "data:" + type + ";base64," + base64;
}

// OpenAI's: {"data", "format"}.
std::string given_sound(const Fields& part) {
  const Json* sound = part.object("input_audio");
  if (!sound) refuse(part.name("input_audio"), "'", part.name("input_audio"), "' is missing");
  const Fields in(*sound, part.name("input_audio") + ".");
  const std::string data = in.needed_text("data"), format = in.text("format").value_or("wav");
  return data.starts_with("data:") ? data : data_uri("audio/" + format.substr(0, 32), data);
}

// Anthropic's: {"type": "base64", "media_type", "data"} or {"type": "url", "url"}.
std::string source_of(const Fields& part) {
  const Json* source = part.object("source");
  if (!source) refuse(part.name("source"), "'", part.name("source"), "' is missing");
  const Fields in(*source, part.name("source") + ".");
  const std::string type = in.needed_text("type");
  if (type == "url") return in.needed_text("url");
  if (type != "base64")
    refuse(in.name("type"), "'", in.name("type"), "' is '", type.substr(0, 64), "', it must be base64 or url");
  return data_uri(in.needed_text("media_type").substr(0, 64), in.needed_text("data"));
}

Json entry_of(const Fields& part, const std::string& type) {
  if (type == "input_audio") return given_sound(part);
  if (type == "input_image") return address(part, "image_url");
  if (type != "image" && type != "video" && type != "audio") return address(part, type.c_str());
  if (part.find("source")) return source_of(part);
  const Json* frames = part.find(type.c_str());
  if (type != "video" || !frames || !frames->is_array()) return address(part, type.c_str());
  for (const Json& frame : *frames)
    if (!frame.is_string()) refuse(part.name("video"), "'", part.name("video"), "': each frame must be a text");
  return *frames;
}

std::string allowed_entry(const std::string& entry, const MediaRules& rules) {
  if (entry.starts_with("data:") || entry.starts_with("http://") || entry.starts_with("https://")) return entry;
  const std::string scheme = "file://";
  const std::string path = entry.starts_with(scheme) ? entry.substr(scheme.size()) : entry;
  if (rules.folder.empty())
    refuse("messages",
           "an image, video or sound must come as data:<type>;base64,<letters> or be at a URL (http, "
           "https), and not '",
           entry_name(entry), "': this server opens no files");
  std::error_code code;
  const fs::path root = fs::canonical(rules.folder, code), given(path);
  const fs::path real = code ? fs::path() : fs::weakly_canonical(given.is_absolute() ? given : root / given, code);
  const auto [end, at] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  if (code || end != root.end() || at == real.end() || !fs::is_regular_file(real, code))
    refuse("messages", "'", entry_name(entry), "' is no file that this server may open");
  return real.string();
}

}  // namespace

std::string media_tag(const Fields& part, const std::string& type, Json& media) {
  static const std::map<std::string, const char*> kinds = {
      {"image_url", "image"}, {"input_image", "image"}, {"image", "image"},       {"video_url", "video"},
      {"video", "video"},     {"audio_url", "audio"},   {"input_audio", "audio"}, {"audio", "audio"}};
  const auto found = kinds.find(type);
  if (found == kinds.end()) return "";
  const MediaKind& kind = *media_kind(found->second);
  refuse_settings(part);
  if (!media.contains(kind.column)) media[kind.column] = Json::array();
  media[kind.column].push_back(entry_of(part, type));
  return kind.tag;
}

void take_listed_media(const Fields& f, Json& media) {
  for (const MediaKind& kind : kMediaKinds) {
    const Json* entries = f.list(kind.column);
    if (!entries || entries->empty()) continue;
    if (media.contains(kind.column))
      refuse(kind.column, "'", kind.column, "': the messages hold some already; give them there or here, not both");
    for (const Json& entry : *entries) {
      const bool frames = kind.name == std::string_view("video") && entry.is_array() &&
                          std::all_of(entry.begin(), entry.end(), [](const Json& frame) { return frame.is_string(); });
      if (entry.is_object())
        media[kind.column].push_back(Fields(entry, str(kind.column, "[].")).needed_text("url"));
      else if (entry.is_string() || frames)
        media[kind.column].push_back(entry);
      else
        refuse(kind.column, "'", kind.column, "' must list URLs and data URIs");
    }
  }
}

Json allowed_media(const Json& media, const MediaRules& rules) {
  int64_t count = 0;
  const auto counted = [&] {
    if (++count > rules.most)
      refuse("messages", "the messages hold more than ", rules.most, " images, videos, their frames and sounds");
  };
  Json out = media;
  for (auto& [column, entries] : out.items())
    for (Json& entry : entries) {
      if (entry.is_string()) {
        counted();
        entry = allowed_entry(entry.get<std::string>(), rules);
        continue;
      }
      for (Json& frame : entry) {
        counted();
        frame = allowed_entry(frame.get<std::string>(), rules);
      }
    }
  return out;
}

}  // namespace apus
