// SPDX-License-Identifier: Apache-2.0
// What a checkpoint makes of a medium: the numbers that its tower takes, and the tokens that stand for it in a text.
// Made of config.json and preprocessor_config.json; each family that sees or hears registers its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/registry.h"
#include "media/frames.h"
#include "media/image.h"
#include "media/media_item.h"
#include "media/media_options.h"
#include "media/sizes.h"

namespace apus {

class Tokenizer;

// A medium made ready for a model. In a conversation `text` stands for it, in which the token `placeholder` occurs once
// for each of `runs`: the tokens that it becomes when the text has been tokenized.
struct PreparedMedia {
  std::shared_ptr<const MediaContent> content;
  std::string text;
  int32_t placeholder = 0;
  std::vector<std::vector<int32_t>> runs;
  // A video's own sound, where its tokens stand among the video's, and the token that it has. Null: there is none.
  std::shared_ptr<const MediaContent> sound = nullptr;
  int32_t sound_placeholder = 0;
  // It is read as one with the question behind it, each token seeing all others: its tokens reach to where the answer
  // begins. A row has one of such.
  bool with_question = false;
  // What becomes of it depends on the other media of a text, also on those behind it.
  bool with_others = false;
  // The tokens of one line feed, of two, and so on, where runs begin and end with some: with those of the text beside
  // them they become one token, as if all had been tokenized together. Null: they stay as they are.
  std::shared_ptr<const std::vector<int32_t>> line_feeds = nullptr;
};

// How a family writes where something is in a picture.
struct BoxForm {
  bool thousandths = true;  // of the picture's sides; false: pixels of the picture as the model sees it
  std::string ref_open, ref_close, open, close;  // around a name, and around a box
  bool pairs = true;                             // (x1,y1),(x2,y2); false: x1, y1, x2, y2
};

// How a model is asked to write down what is said in a sound.
struct Transcription {
  std::string ask = "Write down what is said.";  // beside the sound; empty: it needs no words
  bool hints_are_system = false;                 // what helps it (names, spellings) is the system prompt
  std::string begin = "";                        // of the answer, where the language is known
  std::string mark = "";                         // what is said stands behind it, where the answer has it
  int64_t seconds = 0;                           // of a sound at a time; 0: as many as there are
  // Not empty: nobody said the language, and the model does by the first token of its answer. These are the tokens and
  // the languages' codes.
  std::vector<std::pair<int32_t, std::string>> languages = {};
};

class MediaProcessor {
 public:
  explicit MediaProcessor(std::optional<int64_t> max_pixels) : max_pixels_(max_pixels) {}
  virtual ~MediaProcessor() = default;

  // `among`: so many pictures stand in the conversation.
  PreparedMedia image(const Image& image, int64_t among = 1) const {
    return sees_from_afar(among) ? prepared_from_afar(capped(image)) : prepared_image(capped(image));
  }
  bool sees_from_afar(int64_t among) const { return among > looks_closer_at(); }
  // At so many pictures of a conversation; where there are more, less is seen of each.
  virtual int64_t looks_closer_at() const { return INT64_MAX; }
  // All frames in the size of the first.
  PreparedMedia video(VideoFrames video) const { return prepared_video(checked(std::move(video))); }
  // Samples of 16 kHz. Fault::Data from models that do not hear.
  virtual PreparedMedia sound(const std::vector<float>& samples) const;
  // `language`: a code (ISO 639) or a name; empty: the model finds it out. Fault::Data for one that it does not know.
  virtual Transcription transcription(const std::string& language) const;
  // Whether videos from files are heard too (USE_AUDIO_IN_VIDEO), and one with its sound.
  virtual bool hears_videos() const { return false; }
  virtual PreparedMedia video_with_sound(VideoFrames video, const std::vector<float>& samples) const;

  // What `text` of a medium becomes in a conversation whose number-th of its kind (from 0) it is.
  virtual std::string counted(const std::string& text, size_t /*number*/) const { return text; }

  // The pictures that the tower is given of this one: one in its size, or tiles.
  std::vector<Image> views(const Image& image) const { return seen(capped(image)); }
  std::vector<Image> views(VideoFrames video) const { return seen_frames(checked(std::move(video))); }
  // Of a video file: which of its frames are taken, and what is kept of each of `count`.
  virtual std::vector<int64_t> chosen_frames(int64_t total, double rate) const { return even_frames(total, rate, {}); }
  virtual Image kept_frame(Image frame, int64_t /*count*/) const { return frame; }
  // The size in which the model sees all of the picture.
  virtual ImageSize seen_size(ImageSize size) const = 0;
  virtual BoxForm boxes() const { return {true, "", "", "[", "]", true}; }
  // Tokens that only media become: truncation keeps them.
  virtual std::vector<int32_t> media_tokens() const = 0;
  // Under which of transformers' names the numbers of a kind and the grid are known; "": there is none.
  virtual std::string values_name(MediaType type) const;
  virtual std::string grid_name(MediaType type) const;

 protected:
  virtual PreparedMedia prepared_image(const Image& image) const = 0;
  virtual PreparedMedia prepared_from_afar(const Image& image) const { return prepared_image(image); }
  virtual PreparedMedia prepared_video(const VideoFrames& video) const;
  virtual std::vector<Image> seen(const Image& image) const = 0;
  virtual std::vector<Image> seen_frames(const VideoFrames& video) const;

 private:
  Image capped(const Image& image) const;  // --max_pixels
  VideoFrames checked(VideoFrames video) const;
  std::optional<int64_t> max_pixels_;
};

// What a family's processor is made of.
struct MediaCheckpoint {
  Json config, preprocessor;             // null: there is no preprocessor_config.json
  const Tokenizer* tokenizer = nullptr;  // null: token ids are those of config.json, or 0
  MediaSettings settings;
  std::optional<int64_t> max_pixels;
  Json processor = {}, video_preprocessor = {};  // of their files; null: there is none

  // Of a token by its text. Fault::Model where the tokenizer does not know it, or config.json says another at `key`.
  int32_t token(const std::string& text, const std::string& key) const;
  // A whole number of preprocessor_config.json, or of config.json's part at `section`, or the default.
  int64_t whole(const char* name, const char* section, const char* name_there, int64_t otherwise) const;
};
using MakeMediaProcessor = std::function<std::shared_ptr<const MediaProcessor>(const MediaCheckpoint&)>;

// preprocessor_config.json of a checkpoint's folder, which transformers 5 keeps inside another file; null: there is
// none.
Json preprocessor_in(const std::filesystem::path& model_dir);

// Under the model_type of config.json.
struct RegisterMediaFamily {
  RegisterMediaFamily(std::initializer_list<const char*> names, const MakeMediaProcessor& make) {
    for (const char* name : names) Registry<MakeMediaProcessor>::of().add(name, make);
  }
};

// Null for a model that reads text only; settings given by flags are Fault::Usage there.
std::shared_ptr<const MediaProcessor> open_media_processor(const std::filesystem::path& model_dir,
                                                           const Tokenizer* tokenizer, const MediaOptions& options);
// The same from the files' contents.
std::shared_ptr<const MediaProcessor> make_media_processor(const MediaCheckpoint& checkpoint);

// Names a content: of what is counted as equal all that its values are made of, `pixels` besides.
std::string content_digest(const MediaContent& content, const std::string& form, const std::vector<Image>& pictures);

}  // namespace apus
