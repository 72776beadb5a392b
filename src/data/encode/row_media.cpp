// SPDX-License-Identifier: Apache-2.0
#include "data/encode/row_media.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "base/clock.h"
#include "base/digest.h"
#include "data/encode/grounding.h"
#include "data/rows/media_refs.h"
#include "media/video.h"

namespace apus {

namespace {

constexpr double kFrameRate = 2;  // of a video that is given as pictures, as qwen-vl-utils takes it
constexpr std::array<MediaType, 3> kTypes{MediaType::Image, MediaType::Video, MediaType::Audio};  // as kMediaKinds

// Each tag that has a medium left, in the order of the text.
template <class F>
void each_tag(const Row& row, Json& messages, const F& text_of) {
  std::array<size_t, kMediaKinds.size()> used{};
  for (Json& message : messages) {
    auto& text = message["content"].get_ref<std::string&>();
    std::string out;
    for (size_t at = 0; at < text.size();) {
      size_t kind = kMediaKinds.size();
      for (size_t k = 0; k < kMediaKinds.size(); ++k)
        if (text.compare(at, std::string_view(kMediaKinds[k].tag).size(), kMediaKinds[k].tag) == 0) kind = k;
      const bool open = kind < kMediaKinds.size() && row.value.contains(kMediaKinds[kind].column) &&
                        used[kind] < row.value[kMediaKinds[kind].column].size();
      if (open) {
        out += text_of(kind, used[kind]++);
        at += std::string_view(kMediaKinds[kind].tag).size();
      } else {
        out += text[at++];
      }
    }
    text = std::move(out);
  }
}

struct EntryBytes {
  std::string where, bytes;
};

EntryBytes bytes_of_image(const Json& entry, const std::string& root, const SourceLimits& limits) {
  require(entry.is_string(), Fault::Data, "an image must be one path, URL or data URI");
  const std::string where = resolved_media(entry.get<std::string>(), root);
  return {where, media_bytes(where, limits)};
}

Image image_of(const EntryBytes& file) {
  try {
    return decode_image(file.bytes);
  } catch (const Error& error) {
    fail(error.at, entry_name(file.where), ": ", error.what());
  }
}

// By what a video or a sound is kept. A file may be too large to be read for that: its place, size and time stand for
// it. Empty: nobody knows before it is there.
std::string key_of_stream(const std::string& where) {
  if (where.starts_with("http://") || where.starts_with("https://")) return "";
  if (!is_local_file(where)) return hex_digest(where, 16);
  struct stat info {};
  if (::stat(where.c_str(), &info) != 0) return "";
  return str(info.st_dev, ' ', info.st_ino, ' ', info.st_size, ' ', info.st_mtim.tv_sec, ' ', info.st_mtim.tv_nsec);
}

// Of the sound of the video that `source` names.
std::string own_sound(const std::string& source) {
  Json of = parse_json(source, "a stored medium");
  of["own_sound"] = true;
  return json_text(of);
}

}  // namespace

Image entry_image(const Json& entry, const std::string& root, const SourceLimits& limits) {
  const EntryBytes file = bytes_of_image(entry, root, limits);
  return image_of(file);
}

VideoFrames entry_frames(const Json& entry, const std::string& root, const SourceLimits& limits) {
  VideoFrames video;
  for (const Json& frame : entry) {
    video.at.push_back(static_cast<int64_t>(video.frames.size()));
    video.frames.push_back(entry_image(frame, root, limits));
  }
  video.rate = video.taken_rate = kFrameRate;
  return video;
}

Json with_media_tags(const Row& row, const Json& messages, const std::function<void(const std::string&)>& remark) {
  Json out = messages;
  for (const MediaKind& kind : kMediaKinds) {
    if (!row.value.contains(kind.column)) continue;
    const size_t media = row.value[kind.column].size();
    const size_t tags = tags_in(out, kind.tag);
    if (tags > media && remark)
      remark(str("more ", kind.tag, " tags than entries in '", kind.column, "'; the surplus stays as text"));
    if (tags >= media) continue;
    const auto asked = std::find_if(out.begin(), out.end(), [](const Json& m) { return m["role"] == "user"; });
    if (asked == out.end())
      throw RowError(
          row.origin, kind.column,
          str("no message of a user in which the ", kind.tag, " tags could stand; write them into the text"));
    std::string missing;
    for (size_t i = tags; i < media; ++i) missing += kind.tag;
    (*asked)["content"] = missing + (*asked)["content"].get<std::string>();
  }
  return out;
}

MediaReader::MediaReader(std::shared_ptr<const MediaProcessor> processor, std::string root, Json settings,
                         int64_t cache_bytes)
    : processor_(std::move(processor)),
      root_(std::move(root)),
      settings_(std::move(settings)),
      limits_(source_limits()),
      cache_(cache_bytes > 0 ? std::make_shared<MediaCache>(cache_bytes) : nullptr) {}

std::shared_ptr<const MediaReader> open_media_reader(const std::filesystem::path& model_dir, const Tokenizer& tokenizer,
                                                     const MediaOptions& options) {
  auto processor = open_media_processor(model_dir, &tokenizer, options);
  if (!processor) return nullptr;
  const char* root = std::getenv("ROOT_IMAGE_DIR");
  Json settings = options.settings().all();
  if (options.max_pixels) settings["--max_pixels"] = *options.max_pixels;
  return std::make_shared<MediaReader>(std::move(processor), root ? root : "", std::move(settings),
                                       options.cache_bytes());
}

std::shared_ptr<const MediaReader> MediaReader::within(const SourceLimits& limits) const {
  auto other = std::make_shared<MediaReader>(*this);
  other->limits_ = limits;
  return other;
}

std::string MediaReader::cache_line() const {
  if (!cache_) return "";
  const MediaCache::Counts counts = cache_->counts();
  if (counts.made == 0) return "";
  return str("media: ", counts.made, " decoded, ", counts.found, " found among those that are kept (",
             bytes_text(counts.bytes), " of ", bytes_text(counts.most_bytes), ", --media_cache_mb)");
}

MadeMedium MediaReader::kept_or_made(const std::string& key, const std::function<MadeMedium()>& make) const {
  return cache_ && !key.empty() ? cache_->get(key, make) : make();
}

MadeMedium MediaReader::prepared(MediaType type, const Json& entry, int64_t among) const {
  if (type == MediaType::Image) {
    const EntryBytes file = bytes_of_image(entry, root_, limits_);
    const char* const kind = processor_->sees_from_afar(among) ? "image from afar " : "image ";
    return kept_or_made(cache_ ? kind + hex_digest(file.bytes, 16) : "", [&]() -> MadeMedium {
      const Image image = image_of(file);
      return {processor_->image(image, among), {image.width, image.height}};
    });
  }
  // Frames of a list are not kept: their files would have to be held all at once to know the list by its content.
  const std::string key =
      cache_ && entry.is_string() ? key_of_stream(resolved_media(entry.get<std::string>(), root_)) : "";
  return kept_or_made(key.empty() ? "" : str(static_cast<int>(type), ' ', key), [&] { return made_of(type, entry); });
}

// Of a video or a sound.
MadeMedium MediaReader::made_of(MediaType type, const Json& entry) const {
  if (type == MediaType::Video && entry.is_string() && processor_->hears_videos())
    return {processor_->video_with_sound(frames_of(entry),
                                         read_sound(resolved_media(entry.get<std::string>(), root_), limits_)),
            {}};
  if (type == MediaType::Video) return {processor_->video(frames_of(entry)), {}};
  require(entry.is_string(), Fault::Data, "a sound must be one path, URL or data URI");
  const std::string where = resolved_media(entry.get<std::string>(), root_);
  const std::vector<float> samples = read_sound(where, limits_);
  try {
    return {processor_->sound(samples), {}};
  } catch (const Error& error) {
    fail(error.at, entry_name(where), ": ", error.what());
  }
}

std::vector<ImageSize> image_sizes(const RowMedia& media) {
  std::vector<ImageSize> sizes;
  for (const RowMedium& medium : media)
    if (medium.media.content->type == MediaType::Image) sizes.push_back(medium.size);
  return sizes;
}

RowMedia MediaReader::read(const Row& row, Json& messages,
                           const std::function<void(const std::string&)>& remark) const {
  check_media_readable(row.value, root_, row.origin);
  RowMedia out;
  const int64_t among = row.value.contains("images") ? std::ssize(row.value["images"]) : 0;
  each_tag(row, messages, [&](size_t kind, size_t number) {
    const char* column = kMediaKinds[kind].column;
    const Json& entry = row.value[column][number];
    const std::string key = str(column, "[", number, "]");
    try {
      Json source = {{"type", kMediaKinds[kind].name}, {"entry", entry}};
      if (kTypes[kind] == MediaType::Image && processor_->sees_from_afar(among)) source["among"] = among;
      MadeMedium made = prepared(kTypes[kind], entry, among);
      out.push_back({std::move(made.media), json_text(source), key, made.size});
    } catch (const RowError&) {
      throw;
    } catch (const Error& error) {
      if (error.at.fault != Fault::Data && error.at.fault != Fault::Io) throw;
      throw RowError(row.origin, key, error.what());
    }
    return processor_->counted(out.back().media.text, number);
  });
  put_objects(row, messages, image_sizes(out), *processor_, remark);
  return out;
}

void MediaReader::load(MediaItem& item) const {
  if (item.content) return;
  const Json source = parse_json(item.source, "a stored medium");
  const MediaKind* kind = media_kind(source.value("type", ""));
  require(kind != nullptr && source.contains("entry"), Fault::Data, "a stored medium without its source");
  const size_t number = static_cast<size_t>(kind - kMediaKinds.data());
  const PreparedMedia made = prepared(kTypes[number], source["entry"], source.value("among", int64_t{1})).media;
  item.content = source.value("own_sound", false) ? made.sound : made.content;
  require(item.content && item.content->digest == item.digest.substr(0, item.digest.find(':')), Fault::Data,
          entry_name(json_text(source["entry"])),
          ": it has changed since the row was encoded, or the settings of media have");
}

VideoFrames MediaReader::frames_of(const Json& entry) const {
  if (entry.is_array()) return entry_frames(entry, root_, limits_);
  require(entry.is_string(), Fault::Data, "a video must be a path, URL or data URI, or a list of frames");
  return read_video(
      resolved_media(entry.get<std::string>(), root_), limits_,
      {.choose = [&](int64_t frames, double rate) { return processor_->chosen_frames(frames, rate); },
       .shrink = [&](Image frame, int64_t count) { return processor_->kept_frame(std::move(frame), count); }});
}

std::vector<Image> MediaReader::views(const std::string& source) const {
  const Json parsed = parse_json(source, "a medium");
  if (parsed.value("own_sound", false)) return {};
  const std::string type = parsed.value("type", "");
  if (type == "image") return processor_->views(entry_image(parsed["entry"], root_, limits_));
  if (type == "video") return processor_->views(frames_of(parsed["entry"]));
  return {};
}

namespace {
// How many line feeds a token is; 0: it is another one.
size_t feeds_in(const std::vector<int32_t>& feeds, int32_t id) {
  const auto found = std::find(feeds.begin(), feeds.end(), id);
  return found == feeds.end() ? 0 : static_cast<size_t>(found - feeds.begin()) + 1;
}

// Line feeds of the text and of a run that meet become one token, that of the text. True: they did, or there are none.
bool joined_feeds(std::vector<int32_t>& text, const RowMedium& medium, int32_t next) {
  const auto& feeds = medium.media.line_feeds;
  if (!feeds || text.empty()) return false;
  const size_t before = feeds_in(*feeds, text.back()), more = feeds_in(*feeds, next);
  if (before == 0 || more == 0 || before + more > feeds->size()) return false;
  text.back() = (*feeds)[before + more - 1];
  return true;
}
}  // namespace

namespace {
// What becomes of the picture depends on these words too, and so does the digest by which it is found again.
void join_question(Sample& out, const RowMedia& media, const Origin& origin) {
  if (media.size() > 1) throw RowError(origin, media[1].key, "this model reads one picture with each question");
  const auto answer = std::find(out.trained.begin(), out.trained.end(), 1) - out.trained.begin();
  MediaItem& item = out.media.front();
  item.length = answer - item.begin;
  const std::string words(reinterpret_cast<const char*>(out.ids.data()), static_cast<size_t>(answer) * sizeof(int32_t));
  item.digest += ":" + hex_digest(words, 16);
}
// The digests of media that see each other tell all of them, and the words between.
void join_all(Sample& out) {
  const MediaItem& last = out.media.back();
  std::string all(reinterpret_cast<const char*>(out.ids.data()),
                  static_cast<size_t>(last.begin + last.length) * sizeof(int32_t));
  for (const MediaItem& item : out.media) all += item.digest;
  for (MediaItem& item : out.media) item.digest += ":" + hex_digest(all, 16);
}
}  // namespace

void place_media(Sample& sample, RowMedia media, const Origin& origin) {
  require(sample.token_columns.empty(), Fault::Bug, "media are placed before a loss has columns");
  Sample out;
  size_t medium = 0, run = 0;
  const auto is_placeholder = [&](int32_t id) {
    return std::any_of(media.begin(), media.end(), [&](const RowMedium& m) { return m.media.placeholder == id; });
  };
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    const int32_t id = sample.ids[i];
    if (!is_placeholder(id)) {
      if (medium > 0 && i > 0 && is_placeholder(sample.ids[i - 1]) && joined_feeds(out.ids, media[medium - 1], id))
        continue;
      out.ids.push_back(id), out.trained.push_back(sample.trained[i]);
      if (!sample.weights.empty()) out.weights.push_back(sample.weights[i]);
      continue;
    }
    if (medium == media.size() || media[medium].media.placeholder != id)
      throw RowError(origin, "messages",
                     "the text itself holds a token that stands for a medium; write <image>, <video> or <audio>");
    const PreparedMedia& prepared = media[medium].media;
    const std::vector<int32_t>& whole = prepared.runs[run];
    const size_t joined = !whole.empty() && joined_feeds(out.ids, media[medium], whole.front()) ? 1 : 0;
    const std::span<const int32_t> tokens = std::span(whole).subspan(joined);
    if (run == 0) {
      MediaItem item;
      item.begin = static_cast<int64_t>(out.ids.size());
      item.content = prepared.content, item.digest = prepared.content->digest, item.source = media[medium].source;
      out.media.push_back(std::move(item));
    }
    const auto first = static_cast<int64_t>(out.ids.size());
    out.ids.insert(out.ids.end(), tokens.begin(), tokens.end());
    out.trained.insert(out.trained.end(), tokens.size(), 0);
    if (!sample.weights.empty()) out.weights.insert(out.weights.end(), tokens.size(), 0);
    if (++run < prepared.runs.size()) continue;
    const auto end = static_cast<int64_t>(out.ids.size());
    out.media.back().length = end - out.media.back().begin;
    if (prepared.sound) {  // from its own first token on; both end together
      MediaItem item = {{prepared.sound->digest, 0, 0}, prepared.sound, own_sound(media[medium].source)};
      item.begin = first + (std::find(tokens.begin(), tokens.end(), prepared.sound_placeholder) - tokens.begin());
      item.length = end - item.begin;
      out.media.push_back(std::move(item));
    }
    run = 0, ++medium;
  }
  if (medium < media.size())
    throw RowError(origin, media[medium].key,
                   "the chat template leaves it out: the message in which it stands is not shown to the model");
  if (!media.empty() && media[0].media.with_question) join_question(out, media, origin);
  const auto with_others = [](const RowMedium& m) { return m.media.with_others; };
  if (out.media.size() > 1 && std::any_of(media.begin(), media.end(), with_others)) join_all(out);
  sample.ids = std::move(out.ids), sample.trained = std::move(out.trained), sample.weights = std::move(out.weights);
  sample.media = std::move(out.media);
}

}  // namespace apus
