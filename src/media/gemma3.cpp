// SPDX-License-Identifier: Apache-2.0
// Gemma 3: a picture as one square, between blank lines.
#include "base/error.h"
#include "media/square.h"
#include "text/tokenizer.h"

namespace apus {

namespace {

class Gemma3Processor : public MediaProcessor {
 public:
  explicit Gemma3Processor(const MediaCheckpoint& c)
      : MediaProcessor(c.max_pixels),
        square_(c, kHalfScale, Filter::Bilinear, of_tower(c, "image_size", 896)),
        token_(c.token("<image_soft_token>", "image_token_index")),
        begin_(c.token("<start_of_image>", "boi_token_index")),
        end_(c.token("<end_of_image>", "eoi_token_index")) {
    const Json& file = c.preprocessor;
    require(!file.is_object() || !file.contains("do_pan_and_scan") || file["do_pan_and_scan"] != true, Fault::Model,
            "preprocessor_config.json: do_pan_and_scan true (crops of a picture beside it) is not supported; set it "
            "to false");
    const auto tokens = c.config.contains("mm_tokens_per_image") ? c.config["mm_tokens_per_image"].get<int64_t>() : 256;
    run_.assign(static_cast<size_t>(tokens), token_);
    run_.insert(run_.begin(), begin_);
    run_.push_back(end_);
    if (c.tokenizer) line_feeds_ = line_feeds_of(*c.tokenizer);
    if (line_feeds_->size() >= 2) {
      run_.insert(run_.begin(), (*line_feeds_)[1]);
      run_.push_back((*line_feeds_)[1]);
    }
  }
  ImageSize seen_size(ImageSize) const override { return {square_.side(), square_.side()}; }
  std::vector<int32_t> media_tokens() const override { return {token_, begin_, end_}; }
  std::string grid_name(MediaType) const override { return ""; }

 protected:
  std::vector<Image> seen(const Image& image) const override { return {square_(image)}; }
  PreparedMedia prepared_image(const Image& image) const override {
    PreparedMedia out{square_.content(seen(image), "gemma3"), "<start_of_image>", begin_, {run_}};
    out.line_feeds = line_feeds_;
    return out;
  }

 private:
  // The tokens of one line feed, of two, of three, as far as they are one token.
  static std::shared_ptr<const std::vector<int32_t>> line_feeds_of(const Tokenizer& tokenizer) {
    auto out = std::make_shared<std::vector<int32_t>>();
    for (std::string text = "\n"; out->size() < 32; text += "\n") {
      const std::optional<int32_t> id = tokenizer.id(text);
      if (!id) break;
      out->push_back(*id);
    }
    return out;
  }

  SquareForm square_;
  int32_t token_, begin_, end_;
  std::vector<int32_t> run_;
  std::shared_ptr<const std::vector<int32_t>> line_feeds_ = std::make_shared<std::vector<int32_t>>();
};

const RegisterMediaFamily gemma3({"gemma3"},
                                 [](const MediaCheckpoint& c) { return std::make_shared<Gemma3Processor>(c); });

}  // namespace
}  // namespace apus
