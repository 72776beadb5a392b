// SPDX-License-Identifier: Apache-2.0
#include "cli/sent_media.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "data/rows/media_refs.h"
#include "media/image.h"
#include "media/source.h"

namespace apus {
namespace {

struct Form {
  const char *begin, *type;  // of a file's bytes
};
constexpr std::array<Form, 4> kForms{
    {{"RIFF....WAVE", "audio/wav"}, {"....ftyp", "video/mp4"}, {"ID3", "audio/mpeg"}, {"fLaC", "audio/flac"}}};

std::string type_of(const std::string& bytes) {
  if (const std::string picture = image_type(bytes); !picture.empty()) return picture;
  for (const Form& form : kForms) {
    const std::string_view begin = form.begin;
    bool fits = bytes.size() >= begin.size();
    for (size_t i = 0; fits && i < begin.size(); ++i) fits = begin[i] == '.' || begin[i] == bytes[i];
    if (fits) return form.type;
  }
  return "application/octet-stream";
}

std::string address_of(const std::string& entry) {
  if (!is_local_file(entry)) return entry;
  const std::string bytes = media_bytes(entry, source_limits());
  return "data:" + type_of(bytes) + ";base64," + base64(bytes);
}

Json part_of(const MediaKind& kind, const Json& entry) {
  if (entry.is_array()) {  // a video's frames
    Json frames = Json::array();
    for (const Json& frame : entry) frames.push_back(address_of(frame.get<std::string>()));
    return {{"type", kind.name}, {kind.name, std::move(frames)}};
  }
  const std::string address = address_of(entry.get<std::string>()), sound = "data:audio/";
  if (address.starts_with(sound)) {
    const size_t end = address.find(';'), data = address.find(',');
    const std::string format = address.substr(sound.size(), end - sound.size());
    return {{"type", "input_audio"},
            {"input_audio", {{"data", address.substr(data + 1)}, {"format", format == "mpeg" ? "mp3" : format}}}};
  }
  const std::string name = std::string(kind.name) + "_url";
  return {{"type", name}, {name, {{"url", address}}}};
}

Json parts_of(const std::string& text, const Json& row, std::map<const MediaKind*, size_t>& shown) {
  Json parts = Json::array();
  for (size_t at = 0; at < text.size();) {
    size_t next = std::string::npos;
    const MediaKind* kind = nullptr;
    for (const MediaKind& each : kMediaKinds)
      if (const size_t found = text.find(each.tag, at); found < next && row.contains(each.column))
        next = found, kind = &each;
    if (const std::string words = text.substr(at, next == std::string::npos ? next : next - at); !words.empty())
      parts.push_back({{"type", "text"}, {"text", words}});
    if (!kind) break;
    parts.push_back(part_of(*kind, row[kind->column].at(shown[kind]++)));
    at = next + std::char_traits<char>::length(kind->tag);
  }
  return parts;
}

}  // namespace

Json sent_messages(const Json& row) {
  Json messages = row.at("messages");
  std::map<const MediaKind*, size_t> shown;
  for (Json& message : messages) {
    if (!message.contains("content") || !message["content"].is_string()) continue;
    const std::string text = message["content"];
    if (Json parts = parts_of(text, row, shown); parts.size() > 1 || (parts.size() == 1 && parts[0]["type"] != "text"))
      message["content"] = std::move(parts);
  }
  return messages;
}

}  // namespace apus
