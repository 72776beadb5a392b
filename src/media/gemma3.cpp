// SPDX-License-Identifier: Apache-2.0
// Gemma 3 and 3n: a picture as one square, between blank lines. 3n hears half a minute at most, which is as many tokens
// however short it is, between blank lines too.
#include <algorithm>

#include "base/error.h"
#include "media/sound.h"
#include "media/square.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

// The tokens of one line feed, of two, of three, as far as they are one token.
std::shared_ptr<const std::vector<int32_t>> line_feeds_of(const Tokenizer* tokenizer) {
  auto out = std::make_shared<std::vector<int32_t>>();
  for (std::string text = "\n"; tokenizer && out->size() < 32; text += "\n") {
    const std::optional<int32_t> id = tokenizer->id(text);
    if (!id) break;
    out->push_back(*id);
  }
  return out;
}

int64_t count_at(const Json& config, const char* key, int64_t otherwise) {
  const int64_t count = config.is_object() ? config.value(key, otherwise) : otherwise;
  require(count > 0 && count <= 1 << 16, Fault::Model, "config.json: ", key, " is ", count);
  return count;
}

class Gemma3Processor : public MediaProcessor {
 public:
  explicit Gemma3Processor(const MediaCheckpoint& c)
      : Gemma3Processor(c, SquareForm(c, kHalfScale, Filter::Bilinear, of_tower(c, "image_size", 896)),
                        "mm_tokens_per_image", "image_token_index", "boi_token_index", "eoi_token_index") {
    const Json& file = c.preprocessor;
    require(!file.is_object() || !file.contains("do_pan_and_scan") || file["do_pan_and_scan"] != true, Fault::Model,
            "preprocessor_config.json: do_pan_and_scan true (crops of a picture beside it) is not supported; set it "
            "to false");
  }
  ImageSize seen_size(ImageSize) const override { return {square_.side(), square_.side()}; }
  std::vector<int32_t> media_tokens() const override { return {token_, begin_, end_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  Gemma3Processor(const MediaCheckpoint& c, SquareForm square, const char* count_key, const char* token_key,
                  const char* begin_key, const char* end_key)
      : MediaProcessor(c.max_pixels),
        square_(std::move(square)),
        token_(c.token("<image_soft_token>", token_key)),
        begin_(c.token("<start_of_image>", begin_key)),
        end_(c.token("<end_of_image>", end_key)),
        line_feeds_(line_feeds_of(c.tokenizer)),
        run_(run_of(begin_, token_, count_at(c.config, count_key, 256), end_)) {}
  std::vector<Image> seen(const Image& image) const override { return {square_(image)}; }
  PreparedMedia prepared_image(const Image& image) const override {
    return between_lines({square_.content(seen(image), "gemma3"), "<start_of_image>", begin_, {run_}});
  }
  // So many of a token between two others, and blank lines around, where the tokenizer knows them.
  std::vector<int32_t> run_of(int32_t begin, int32_t token, int64_t count, int32_t end) const {
    std::vector<int32_t> run(static_cast<size_t>(count), token);
    run.insert(run.begin(), begin);
    run.push_back(end);
    if (line_feeds_->size() < 2) return run;
    run.insert(run.begin(), (*line_feeds_)[1]);
    run.push_back((*line_feeds_)[1]);
    return run;
  }
  PreparedMedia between_lines(PreparedMedia made) const {
    made.line_feeds = line_feeds_;
    return made;
  }

 private:
  SquareForm square_;
  int32_t token_, begin_, end_;
  std::shared_ptr<const std::vector<int32_t>> line_feeds_;
  std::vector<int32_t> run_;
};

class Gemma3nProcessor final : public Gemma3Processor {
 public:
  explicit Gemma3nProcessor(const MediaCheckpoint& c)
      : Gemma3Processor(c, square_of(c), "vision_soft_tokens_per_image", "image_token_id", "boi_token_id",
                        "eoi_token_id"),
        image_(c.token("<image_soft_token>", "image_token_id")),
        sound_(c.token("<audio_soft_token>", "audio_token_id")),
        begin_(c.token("<start_of_audio>", "boa_token_id")),
        end_(c.token("<end_of_audio>", "eoa_token_id")),
        mels_(c.whole("feature_size", "audio_config", "input_feat_size", 128)),
        run_(run_of(begin_, sound_, count_at(c.config, "audio_soft_tokens_per_image", 188), end_)) {
    check_extractor(c.preprocessor);
  }
  PreparedMedia sound(const std::vector<float>& samples) const override {
    constexpr int64_t kMost = 30 * kSoundRate;
    std::vector<float> heard(samples.begin(), samples.begin() + std::min<int64_t>(kMost, std::ssize(samples)));
    int64_t frames = 0;
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    content->values = log_mel_lifted(heard, mels_, frames);
    content->shape = {mels_, frames};
    content->digest = content_digest(*content, "mel", {});
    return between_lines({content, "<audio_soft_token>", sound_, {run_}});
  }
  std::vector<int32_t> media_tokens() const override {
    std::vector<int32_t> tokens = Gemma3Processor::media_tokens();
    tokens.insert(tokens.end(), {sound_, begin_, end_});
    return tokens;
  }

 protected:
  // As the chat template writes it.
  PreparedMedia prepared_image(const Image& image) const override {
    PreparedMedia made = Gemma3Processor::prepared_image(image);
    made.text = "<image_soft_token>", made.placeholder = image_;
    return made;
  }

 private:
  // Of 768 pixels a side, where the file says no others; numbers from 0 to 1 where it does not normalise them.
  static SquareForm square_of(MediaCheckpoint c) {
    Json& file = c.preprocessor;
    if (!file.is_object()) file = Json::object();
    const Json size = file.value("size", Json::object());
    if (file.value("do_normalize", Json(true)) == false) file["image_mean"] = {0, 0, 0}, file["image_std"] = {1, 1, 1};
    return {c, kHalfScale, Filter::Bilinear, size.is_object() ? size.value("height", int64_t{768}) : 768};
  }
  // All known files make spectra alike.
  static void check_extractor(const Json& file) {
    if (!file.is_object()) return;
    const std::pair<const char*, Json> usual[] = {{"sampling_rate", 16000},
                                                  {"frame_length", 512},
                                                  {"hop_length", 160},
                                                  {"min_frequency", 125.0},
                                                  {"max_frequency", 7600.0},
                                                  {"preemphasis", 0.97},
                                                  {"mel_floor", 1e-5},
                                                  {"fft_overdrive", true},
                                                  {"dither", 0.0},
                                                  {"input_scale_factor", 1.0},
                                                  {"per_bin_mean", nullptr},
                                                  {"per_bin_stddev", nullptr},
                                                  {"preemphasis_htk_flavor", true}};
    for (const auto& [key, value] : usual)
      require(!file.contains(key) || file[key] == value, Fault::Model, "preprocessor_config.json: ", key, " ",
              file.value(key, Json()).dump(), " is not supported, only ", value.dump());
  }

  int32_t image_, sound_, begin_, end_;
  int64_t mels_;
  std::vector<int32_t> run_;
};

const RegisterMediaFamily gemma3({"gemma3"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<Gemma3Processor>(c); });
const RegisterMediaFamily gemma3n({"gemma3n"},
                                  [](const MediaCheckpoint& c) { return std::make_shared<Gemma3nProcessor>(c); });

}  // namespace
}  // namespace apus
