// SPDX-License-Identifier: Apache-2.0
#include "data/rows/media_refs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace apus {

namespace {

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_remote(std::string_view entry) {
  return entry.starts_with("http://") || entry.starts_with("https://") || entry.starts_with("data:");
}

// Text that is neither a path nor a URL but the bytes themselves: long, and of base64's letters only.
bool is_bare_base64(std::string_view entry) {
  return entry.size() > 512 &&
         entry.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n") ==
             std::string_view::npos;
}

void check_file(const std::string& entry, const std::string& root, const Origin& origin, const std::string& key) {
  if (is_remote(entry) || is_bare_base64(entry)) return;
  const std::string path = resolved_media(entry, root);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int code = errno;
  if (descriptor >= 0) {
    ::close(descriptor);
    return;
  }
  std::string hint;
  if (std::filesystem::path(entry).is_relative())
    hint = str("; relative paths are looked for under ",
               root.empty() ? "the current folder; set ROOT_IMAGE_DIR to another" : "ROOT_IMAGE_DIR (" + root + ")");
  throw RowError(origin, key, str("cannot read ", path, ": ", std::strerror(code), hint));
}

}  // namespace

const MediaKind* media_kind(std::string_view name) {
  for (const MediaKind& kind : kMediaKinds)
    if (name == kind.name || name == std::string(kind.name) + "_url" ||
        (name == "input_audio" && kind.name == std::string_view("audio")))
      return &kind;
  return nullptr;
}

std::string media_entry(const Json& value, const Origin& origin, const std::string& key) {
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    if (text.starts_with("file://")) text.erase(0, 7);
    if (text.empty()) throw RowError(origin, key, "an empty path");
    return text;
  }
  const auto text_at = [&](const char* name) {
    const auto it = value.is_object() ? value.find(name) : value.end();
    return it != value.end() && it->is_string() && !it->get_ref<const std::string&>().empty() ? it->get<std::string>()
                                                                                              : std::string();
  };
  if (value.is_object()) {
    if (const std::string bytes = text_at("bytes"); !bytes.empty())
      return bytes.starts_with("data:") ? bytes : "data:application/octet-stream;base64," + bytes;
    for (const char* name : {"path", "url", "image", "video", "audio"})
      if (const std::string text = text_at(name); !text.empty()) return media_entry(text, origin, key);
    if (const std::string data = text_at("data"); !data.empty()) {
      const std::string type = text_at("media_type");
      return "data:" + (type.empty() ? "application/octet-stream" : type) + ";base64," + data;
    }
  }
  throw RowError(origin, key,
                 str("not an image, video or audio reference: ", json_text(value).substr(0, 80),
                     "; wanted is a path, a URL, a data URI or {\"bytes\", \"path\"}"));
}

Json media_list(const Json& value, const Origin& origin, const std::string& key) {
  Json list = Json::array();
  if (value.is_null()) return list;
  const auto add = [&](const Json& item) {
    if (item.is_null()) return;
    if (!item.is_array()) return list.push_back(media_entry(item, origin, key));
    Json frames = Json::array();
    for (const auto& frame : item) frames.push_back(media_entry(frame, origin, key));
    list.push_back(frames);
  };
  if (value.is_array()) {
    for (const auto& item : value) add(item);
  } else if (value.is_string() && value.get_ref<const std::string&>().starts_with("[")) {  // a list in a CSV cell
    return media_list(parsed_cell(value.get<std::string>(), origin, key), origin, key);
  } else if (!value.is_string() || !value.get_ref<const std::string&>().empty()) {
    add(value);
  }
  return list;
}

bool looks_like_media_path(std::string_view text) {
  static const char* const endings[] = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif",  ".tiff", ".mp4",
                                        ".avi", ".mov",  ".mkv", ".webm", ".wav", ".mp3", ".flac", ".ogg",  ".m4a"};
  if (text.size() < 6 || text.size() > 4096 || text.find('/') == std::string_view::npos) return false;
  const std::string low = lowered(text);
  return std::any_of(std::begin(endings), std::end(endings), [&](const char* ending) { return low.ends_with(ending); });
}

size_t count_tags(std::string_view text, std::string_view tag) {
  size_t count = 0;
  for (size_t at = text.find(tag); at != std::string_view::npos; at = text.find(tag, at + tag.size())) ++count;
  return count;
}

size_t tags_in(const Json& messages, std::string_view tag) {
  size_t count = 0;
  for (const Json& message : messages)
    if (message.contains("content") && message["content"].is_string())
      count += count_tags(message["content"].get_ref<const std::string&>(), tag);
  return count;
}

void old_image_tags(Json& row) {
  const std::string open = "<img>", close = "</img>", tag = "<image>";
  size_t before = 0;  // tags of earlier messages
  for (Json& message : row["messages"]) {
    auto& text = message["content"].get_ref<std::string&>();
    for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
      const size_t begin = at + open.size(), end = text.find(close, begin);
      if (end == std::string::npos) break;
      const std::string entry = text.substr(begin, end - begin);
      if (!looks_like_media_path(entry) && !is_remote(entry)) continue;
      Json& images = row["images"];
      const size_t place = before + count_tags(std::string_view(text).substr(0, at), tag);
      if (!images.is_array() || images.size() < place) continue;
      images.insert(images.begin() + static_cast<int64_t>(place), entry);
      text.replace(at, end + close.size() - at, tag);
    }
    before += count_tags(text, tag);
  }
}

void check_path_in_text(std::string_view text, const Json& row, const Origin& origin) {
  for (const MediaKind& kind : kMediaKinds) {
    const auto column = row.find(kind.column);
    if (column != row.end() && column->is_array() && !column->empty()) continue;
    for (size_t at = text.find(kind.tag); at != std::string_view::npos; at = text.find(kind.tag, at + 1)) {
      const std::string_view rest = text.substr(at + std::strlen(kind.tag));
      const size_t begin = std::min(rest.find_first_not_of(" \n\t"), rest.size());
      const std::string_view word = rest.substr(begin, rest.find_first_of(" \n\t<,;", begin) - begin);
      if (looks_like_media_path(word))
        throw RowError(origin, "messages",
                       str("the path of a medium stands inside the message (", word,
                           "), where it would be read as words; put it into the column '", kind.column, "': [\"", word,
                           "\"] and leave only ", kind.tag, " in the text"));
    }
  }
}

std::string resolved_media(const std::string& entry, const std::string& root) {
  if (root.empty() || is_remote(entry) || is_bare_base64(entry) || std::filesystem::path(entry).is_absolute())
    return entry;
  return (std::filesystem::path(root) / entry).string();
}

void check_media_readable(const Json& row, const std::string& root, const Origin& origin) {
  for (const MediaKind& kind : kMediaKinds) {
    const auto column = row.find(kind.column);
    if (column == row.end() || !column->is_array()) continue;
    for (size_t i = 0; i < column->size(); ++i) {
      const std::string key = str(kind.column, "[", i, "]");
      const Json& entry = (*column)[i];
      if (entry.is_string()) check_file(entry.get<std::string>(), root, origin, key);
      if (!entry.is_array()) continue;
      for (const auto& frame : entry)
        if (frame.is_string()) check_file(frame.get<std::string>(), root, origin, key);
    }
  }
}

}  // namespace apus
