// SPDX-License-Identifier: Apache-2.0
// The images, videos and sounds of a row: read from where it names them, prepared as the model wants them, and put into
// its text and its tokens.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/encode/sample.h"
#include "data/rows/row.h"
#include "media/media_cache.h"
#include "media/processor.h"
#include "media/source.h"

namespace apus {

struct RowMedium {
  PreparedMedia media;
  std::string source;  // as MediaItem's
  std::string key;     // images[2]
  ImageSize size;      // of an image, as its file has it
};
using RowMedia = std::vector<RowMedium>;
std::vector<ImageSize> image_sizes(const RowMedia& media);

class MediaReader {
 public:
  // `root` is put before relative paths; `settings` are the processor's, for made_with(). At most so many bytes of what
  // was made of media are kept.
  MediaReader(std::shared_ptr<const MediaProcessor> processor, std::string root, Json settings = nullptr,
              int64_t cache_bytes = 0);
  // A row's media in the order of their tags in the messages, whose tags become the texts that stand for them; those of
  // its `objects` become names and boxes. What cannot be read is a RowError that names column and path.
  // `remark` is told of what is used but looks wrong.
  RowMedia read(const Row& row, Json& messages, const std::function<void(const std::string&)>& remark = {}) const;
  // The content of an item that has its source alone. Fault::Data when that is no longer what it was.
  void load(MediaItem& item) const;
  // The pictures that the tower is given of a medium: of an image one or its tiles, of a video those of its frames.
  std::vector<Image> views(const std::string& source) const;
  const MediaProcessor& processor() const { return *processor_; }
  // The same, that reads within other limits.
  std::shared_ptr<const MediaReader> within(const SourceLimits& limits) const;
  Json made_with() const { return settings_; }  // what the samples depend on besides the files
  // How often a medium was made and how often what was kept served, in words; empty: nothing is kept.
  std::string cache_line() const;
  int64_t kept_bytes() const { return cache_ ? cache_->counts().bytes : 0; }

 private:
  MadeMedium prepared(MediaType type, const Json& entry, int64_t among) const;
  MadeMedium made_of(MediaType type, const Json& entry) const;
  MadeMedium kept_or_made(const std::string& key, const std::function<MadeMedium()>& make) const;
  VideoFrames frames_of(const Json& entry) const;  // of a video: a file, or a list of frames
  std::shared_ptr<const MediaProcessor> processor_;
  std::string root_;
  Json settings_;
  SourceLimits limits_;
  std::shared_ptr<MediaCache> cache_;  // null: nothing is kept
};

// Of a checkpoint's folder, with ROOT_IMAGE_DIR of the environment. Null: the model reads text only.
std::shared_ptr<const MediaReader> open_media_reader(const std::filesystem::path& model_dir, const Tokenizer& tokenizer,
                                                     const MediaOptions& options);

// The messages with a tag for every medium of the row: missing ones stand before the first question. `remark` is told
// of surplus tags, which stay as text.
Json with_media_tags(const Row& row, const Json& messages, const std::function<void(const std::string&)>& remark = {});

// The tokens of media in the place of those that held it: nothing of them is learnt. RowError when the tokens do not
// show every medium once.
void place_media(Sample& sample, RowMedia media, const Origin& origin);

// The picture that an entry of a row names.
Image entry_image(const Json& entry, const std::string& root, const SourceLimits& limits);
// A list of pictures, two in a second.
VideoFrames entry_frames(const Json& entry, const std::string& root, const SourceLimits& limits);

}  // namespace apus
