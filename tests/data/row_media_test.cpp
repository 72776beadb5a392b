// SPDX-License-Identifier: Apache-2.0
// Rows with images and videos as samples: which tokens stand for them, and what is refused.
#include "data/encode/row_media.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "data/encode/encoder.h"
#include "data/encode/grounding.h"
#include "data/encode/media_dump.h"
#include "data/encode/sample_store.h"
#include "data/rows/documents.h"
#include "data/rows/normalize.h"
#include "data/source/training_data.h"
#include "tensor/safetensors_header.h"
#include "tests/data/data_test_tools.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

constexpr int32_t kStart = 2031, kEnd = 2032, kImagePad = 2034, kVideoPad = 2035;
constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";

fs::path pictures() { return test::source_dir() / "tests/data/media/pictures"; }  // of 37 x 29 pixels

std::shared_ptr<const Tokenizer> seeing_tokenizer() {
  return Tokenizer::load(test::source_dir() / "tests/data/text/tokenizers/tiny-qwen3");
}

// Patches of 4 pixels, so that a picture of 37 x 29 has 40 x 32 of them and stands in 20 tokens.
std::shared_ptr<const MediaReader> reader_of(const Tokenizer& tokenizer, const std::string& type = "qwen2_vl",
                                             int64_t cache_bytes = 0) {
  const Json config = {{"model_type", type}, {"image_token_id", kImagePad}};
  const Json preprocessor = {{"patch_size", 4}, {"merge_size", 2}, {"min_pixels", 64}, {"max_pixels", 6400}};
  auto processor = make_media_processor({config, preprocessor, &tokenizer, MediaSettings(), std::nullopt});
  return std::make_shared<MediaReader>(processor, pictures().string(), nullptr, cache_bytes);
}

Encoder seeing(EncodeOptions options = {}, const std::string& type = "qwen2_vl") {
  const auto tokenizer = seeing_tokenizer();
  return Encoder(tokenizer, ChatTemplate::from_text(kChatMl, "test"), std::move(options), reader_of(*tokenizer, type));
}

Row media_row(const Json& value) {
  Row row{value, {std::make_shared<const std::string>("rows.jsonl"), 3, false}};
  row.value = normalize_row(row, {});
  return row;
}

int64_t count_of(const Sample& sample, int32_t id) { return std::count(sample.ids.begin(), sample.ids.end(), id); }

// Blank lines around an image and those of the text are one token, as if all had been tokenized together.
TEST(RowMedia, LineFeedsThatMeetBecomeOne) {
  const std::vector<int32_t> feeds = {10, 20, 30, 40};  // of one line feed, of two, and so on
  const auto placed = [&](std::vector<int32_t> ids) {
    RowMedium medium;
    medium.media.content = std::make_shared<MediaContent>();
    medium.media.placeholder = 7, medium.media.runs = {{20, 1, 2, 20}};
    medium.media.line_feeds = std::make_shared<const std::vector<int32_t>>(feeds);
    Sample sample;
    sample.ids = std::move(ids), sample.trained.assign(sample.ids.size(), 1);
    place_media(sample, {medium}, {});
    EXPECT_EQ(sample.trained.size(), sample.ids.size());
    EXPECT_EQ(sample.ids[static_cast<size_t>(sample.media[0].begin + sample.media[0].length) - 2], 2);
    return sample.ids;
  };
  EXPECT_EQ(placed({5, 7, 6}), (std::vector<int32_t>{5, 20, 1, 2, 20, 6}));
  EXPECT_EQ(placed({5, 10, 7, 10, 6}), (std::vector<int32_t>{5, 30, 1, 2, 30, 6}));
  EXPECT_EQ(placed({7, 20, 6}), (std::vector<int32_t>{20, 1, 2, 40, 6}));
  EXPECT_EQ(placed({30, 7, 6}), (std::vector<int32_t>{30, 20, 1, 2, 20, 6}));  // of five there is no token
}

// What becomes of a sound may depend on pictures behind it: by its digest, then, it is found with these alone.
TEST(RowMedia, ADigestTellsOtherMediaThatMatter) {
  const auto medium = [](const std::string& digest, int32_t token, bool with_others) {
    RowMedium out;
    auto content = std::make_shared<MediaContent>();
    content->digest = digest;
    out.media.content = content, out.media.placeholder = token, out.media.runs = {{token, token}};
    out.media.with_others = with_others;
    return out;
  };
  const auto digests = [](std::vector<int32_t> ids, RowMedia media) {
    Sample sample;
    sample.ids = std::move(ids), sample.trained.assign(sample.ids.size(), 1);
    place_media(sample, std::move(media), {});
    std::vector<std::string> all;
    for (const MediaItem& item : sample.media) all.push_back(item.digest);
    return all;
  };
  const RowMedium sound = medium("s", 7, true), picture = medium("p", 8, false), other = medium("q", 8, false);
  EXPECT_EQ(digests({5, 7, 6}, {sound})[0], "s");
  const auto before = digests({5, 8, 7}, {picture, sound}), behind = digests({5, 7, 8}, {sound, picture});
  EXPECT_TRUE(behind[0].starts_with("s:"));
  EXPECT_TRUE(before[1].starts_with("s:"));
  EXPECT_NE(digests({5, 7, 8}, {sound, other})[0], behind[0]);
  EXPECT_EQ(digests({5, 8, 8}, {picture, other}), (std::vector<std::string>{"p", "q"}));
}

TEST(RowMedia, PlaceholdersAreAsManyAsTokens) {
  const Sample s = seeing()
                       .encode(media_row({{"query", "Compare <image> with <image>."},
                                          {"response", "alike"},
                                          {"images", {"plain.jpg", "plain.png"}}}))
                       .at(0);
  EXPECT_EQ(count_of(s, kImagePad), 40);
  ASSERT_EQ(s.media.size(), 2u);
  for (const MediaItem& item : s.media) {
    EXPECT_EQ(item.length, 20);
    EXPECT_EQ(s.ids[static_cast<size_t>(item.begin) - 1], kStart);
    EXPECT_EQ(s.ids[static_cast<size_t>(item.begin + item.length)], kEnd);
    for (int64_t i = item.begin; i < item.begin + item.length; ++i) {
      EXPECT_EQ(s.ids[static_cast<size_t>(i)], kImagePad);
      EXPECT_EQ(s.trained[static_cast<size_t>(i)], 0);
    }
    EXPECT_EQ(item.content->grid, (std::array<int64_t, 3>{1, 8, 10}));
    EXPECT_EQ(item.content->shape, (std::vector<int64_t>{80, 96}));
    EXPECT_EQ(item.digest, item.content->digest);
  }
  EXPECT_NE(s.media[0].digest, s.media[1].digest);
  EXPECT_EQ(s.trained.size(), s.ids.size());
  EXPECT_GT(s.trained_tokens(), 0);
}

// As rewards are learnt from: the answer is the model's own.
TEST(RowMedia, QuestionsHaveTheirImages) {
  const Row row = media_row({{"query", "<image>What?"}, {"response", "a"}, {"images", {"plain.jpg"}}});
  const Sample asked = seeing().encode_prompt(row);
  EXPECT_EQ(count_of(asked, kImagePad), 20);
  ASSERT_EQ(asked.media.size(), 1u);
  EXPECT_EQ(asked.ids[static_cast<size_t>(asked.media[0].begin)], kImagePad);
  EXPECT_EQ(asked.trained_tokens(), 0);
  EXPECT_EQ(asked.trained.size(), asked.ids.size());
  EXPECT_TRUE(media_before(asked, static_cast<size_t>(asked.media[0].begin) + 19).empty());
  EXPECT_EQ(media_before(asked, static_cast<size_t>(asked.media[0].begin) + 20).size(), 1u);
  const auto refused = [&](const Encoder& encoder, const std::string& why) {
    try {
      encoder.encode_prompt(row);
      ADD_FAILURE() << why;
    } catch (const RowError& error) {
      test::expect_says(error.what(), why);
    }
  };
  EncodeOptions shorter;
  shorter.max_length = 8, shorter.truncation = Truncation::Left;
  refused(seeing(shorter), "media are never cut");
  refused(Encoder(seeing_tokenizer(), ChatTemplate::from_text(kChatMl, "test"), {}, nullptr), "reads text only");
}

// By the bytes of the file, whatever its name is.
TEST(RowMedia, WhatIsKeptIsNotMadeAgain) {
  const test::Folder folder;
  const auto copy = [&](const char* from) {
    fs::copy_file(pictures() / from, folder.path / "copy", fs::copy_options::overwrite_existing);
    return (folder.path / "copy").string();
  };
  const auto tokenizer = seeing_tokenizer();
  const auto reader = reader_of(*tokenizer, "qwen2_vl", 1 << 20), without = reader_of(*tokenizer);
  const auto sample = [&](const std::shared_ptr<const MediaReader>& media, const std::vector<std::string>& images) {
    const Encoder encoder(tokenizer, ChatTemplate::from_text(kChatMl, "test"), {}, media);
    return encoder.encode(media_row({{"query", "Look"}, {"response", "a"}, {"images", images}})).at(0);
  };
  const std::string same = copy("plain.jpg");
  EXPECT_EQ(reader->cache_line(), "");
  Sample s = sample(reader, {"plain.jpg", "grey.jpg", same, "plain.jpg"});
  test::expect_says(reader->cache_line(), "media: 2 decoded, 2 found");
  EXPECT_EQ(s.media[0].content, s.media[2].content);
  EXPECT_NE(s.media[0].content, s.media[1].content);
  const Sample plain = sample(without, {"plain.jpg", "grey.jpg", same, "plain.jpg"});
  EXPECT_EQ(s.ids, plain.ids);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(s.media[i].content->values, plain.media[i].content->values);
  EXPECT_EQ(without->cache_line(), "");
  // As the next epoch does.
  s.media[2].content = nullptr;
  reader->load(s.media[2]);
  EXPECT_EQ(s.media[2].content, s.media[0].content);
  test::expect_says(reader->cache_line(), "media: 2 decoded, 3 found");
  // A file that has become another one is not taken for what it was.
  copy("grey.jpg");
  s.media[2].content = nullptr;
  test::expect_says(test::refusal(Fault::Data, [&] { reader->load(s.media[2]); }), "it has changed");
}

TEST(RowMedia, MissingTagsStandInFront) {
  const Json with = {{"query", "<image><image>What?"}, {"response", "a"}, {"images", {"plain.jpg", "grey.jpg"}}};
  Json without = with, one = with;
  without["query"] = "What?", one["query"] = "<image>What?";
  const Encoder e = seeing();
  const Sample wanted = e.encode(media_row(with)).at(0);
  EXPECT_EQ(e.encode(media_row(without)).at(0).ids, wanted.ids);
  EXPECT_EQ(e.encode(media_row(one)).at(0).ids, wanted.ids);
  // The same as parts of a message.
  const Json parts = {{"messages",
                       {{{"role", "user"},
                         {"content",
                          {{{"type", "image"}, {"image", "plain.jpg"}},
                           {{"type", "image_url"}, {"image_url", {{"url", "grey.jpg"}}}},
                           {{"type", "text"}, {"text", "What?"}}}}},
                        {{"role", "assistant"}, {"content", "a"}}}}};
  EXPECT_EQ(e.encode(media_row(parts)).at(0).ids, wanted.ids);
}

TEST(RowMedia, SurplusTagsStayText) {
  Encoder e = seeing();
  std::string remark;
  e.on_remark([&](const Origin&, const std::string& text) { remark = text; });
  const Sample s =
      e.encode(media_row({{"query", "<image> and <image>"}, {"response", "a"}, {"images", {"plain.jpg"}}})).at(0);
  EXPECT_EQ(count_of(s, kImagePad), 20);
  EXPECT_NE(remark.find("more <image> tags than entries in 'images'"), std::string::npos) << remark;
}

TEST(RowMedia, VideosAreListsOfFrames) {
  const Json row = {{"query", "<video>What?"}, {"response", "a"}, {"videos", {{"plain.jpg", "grey.jpg", "plain.png"}}}};
  const Sample s = seeing().encode(media_row(row)).at(0);
  EXPECT_EQ(count_of(s, kVideoPad), 40);  // two groups of frames
  ASSERT_EQ(s.media.size(), 1u);
  EXPECT_EQ(s.media[0].content->grid, (std::array<int64_t, 3>{2, 8, 10}));
  EXPECT_EQ(s.media[0].content->seconds_per_grid, 1);
  // With times between them, which belong to the span.
  const Sample timed = seeing({}, "qwen3_vl").encode(media_row(row)).at(0);
  EXPECT_EQ(count_of(timed, kVideoPad), 40);
  EXPECT_GT(timed.media.at(0).length, 40);
  const auto text = seeing_tokenizer()->decode(timed.ids);
  EXPECT_NE(text.find("<0.2 seconds><|vision_start|>"), std::string::npos) << text;
  EXPECT_NE(text.find("<1.0 seconds><|vision_start|>"), std::string::npos) << text;
}

TEST(RowMedia, WhatCannotBeReadIsNamed) {
  const Encoder e = seeing();
  const auto says = [&](Json row, const std::string& part) {
    row["response"] = "a";
    const std::string error = error_of([&] { e.encode(media_row(row)); });
    EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks: " << part;
  };
  const Json two = {"plain.jpg", "none.jpg"};
  says({{"query", "q"}, {"images", two}}, "rows.jsonl, line 3, key 'images[1]': cannot read ");
  says({{"query", "q"}, {"images", {"data:image/png;base64,AAAA"}}},
       "key 'images[0]': data:image/png;base64,AAAA: no picture");
  says({{"query", "q"}, {"images", {"data:image/png,AAAA"}}}, "a data URI must read data:<type>;base64,<letters>");
  says({{"query", "q"}, {"videos", {(pictures() / "plain.jpg").string()}}},
       "key 'videos[0]': " + (pictures() / "plain.jpg").string());
  says({{"query", "q"}, {"audios", {(pictures() / "plain.jpg").string()}}}, "key 'audios[0]'");
  says({{"query", "q <|image_pad|>"}, {"images", {"plain.jpg"}}},
       "the text itself holds a token that stands for a medium");
}

TEST(RowMedia, Base64IsAnImageToo) {
  // base64 of plain.gif, by hand: letters of six bits.
  const std::string bytes = read_file(pictures() / "plain.gif"),
                    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) text += i + k > bytes.size() ? '=' : letters[three >> (18 - 6 * k) & 63];
  }
  const Encoder e = seeing();
  const auto digest = [&](const Json& image) {
    return e.encode(media_row({{"query", "q"}, {"response", "a"}, {"images", {image}}})).at(0).media.at(0).digest;
  };
  const std::string wanted = digest("plain.gif");
  EXPECT_EQ(digest("data:image/gif;base64," + text), wanted);
  EXPECT_EQ(digest(text), wanted);
  EXPECT_EQ(digest(Json{{"bytes", text}, {"path", nullptr}}), wanted);
}

TEST(RowMedia, TruncationKeepsThem) {
  const Json value = {{"query", "one two three four five six seven eight <image> nine ten eleven twelve"},
                      {"response", "thirteen fourteen fifteen sixteen"},
                      {"images", {"plain.jpg"}}};
  const Sample whole = seeing().encode(media_row(value)).at(0);
  for (const Truncation side : {Truncation::Left, Truncation::Right}) {
    const Sample cut = seeing({.max_length = whole.length() - 15, .truncation = side}).encode(media_row(value)).at(0);
    EXPECT_EQ(cut.length(), whole.length() - 15);
    EXPECT_EQ(count_of(cut, kImagePad), 20);
    ASSERT_EQ(cut.media.size(), 1u);
    EXPECT_EQ(cut.media[0].length, 20);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(cut.ids[static_cast<size_t>(cut.media[0].begin + i)], kImagePad);
  }
  EXPECT_NE(error_of([&] {
              seeing({.max_length = 15, .truncation = Truncation::Left}).encode(media_row(value));
            }).find("its media alone take more than max_length (15) tokens"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              seeing({.max_length = 30, .truncation = Truncation::Split}).encode(media_row(value));
            }).find("rows with media cannot be split"),
            std::string::npos);
}

TEST(RowMedia, StoredSamplesMakeTheirPixelsAgain) {
  const TemporaryFolder folder;
  fs::copy_file(pictures() / "plain.jpg", folder.path() / "a.jpg");
  const Encoder e = seeing();
  const std::string path = (folder.path() / "a.jpg").string();
  const Sample made = e.encode(media_row({{"query", "q"}, {"response", "a"}, {"images", {path}}})).at(0);
  Sample stored = unpack_sample(pack_sample(made));
  ASSERT_EQ(stored.media.size(), 1u);
  EXPECT_FALSE(stored.media[0].content);
  EXPECT_EQ(stored.media[0].begin, made.media[0].begin);
  EXPECT_EQ(stored.media[0].length, made.media[0].length);
  e.load_media(stored);
  EXPECT_EQ(stored.media[0].content->values, made.media[0].content->values);
  fs::copy_file(pictures() / "grey.jpg", path, fs::copy_options::overwrite_existing);
  Sample changed = unpack_sample(pack_sample(made));
  EXPECT_NE(error_of([&] { e.load_media(changed); }).find("it has changed since the row was encoded"),
            std::string::npos);
}

TEST(RowMedia, TrainingDataMakeThemWhenTheyAreNeeded) {
  const TemporaryFolder folder;
  const Json row = {{"query", "<image>What?"}, {"response", "a"}, {"images", {(pictures() / "plain.jpg").string()}}};
  const std::string bad = R"({"query": "q", "response": "a", "images": ["none.png"]})";
  folder.write("rows.jsonl", row.dump() + "\n" + bad + "\n" + row.dump() + "\n");
  const Encoder e = seeing();
  for (const bool lazy : {false, true}) {
    TrainingDataOptions options;
    options.datasets.train = {(folder.path() / "rows.jsonl").string()};
    options.lazy = lazy;
    options.batches.batch_size = 3;
    RejectLog rejects({.file = folder.path() / "rejected.jsonl", .shown = 0});
    TrainingData data = prepare_training_data(options, e, rejects);
    const auto batch = data.train->next();
    ASSERT_TRUE(batch);
    ASSERT_EQ(batch->size(), lazy ? 3u : 2u);  // with the bad row's replacement, or without it
    for (const Sample& sample : *batch) {
      ASSERT_EQ(sample.media.size(), 1u);
      ASSERT_TRUE(sample.media[0].content);
      EXPECT_EQ(sample.media[0].content->values.size(), 80u * 96u);
    }
    EXPECT_EQ(rejects.count(), 1);
  }
}

TEST(RowMedia, BoxesAreWrittenAsTheFamilyWritesThem) {
  const Json row = {{"query", "<image>Where is <ref-object>?"},
                    {"response", "At <bbox>, its middle at <bbox>."},
                    {"images", {"plain.jpg"}},
                    {"objects", {{"ref", {"the dog"}}, {"bbox", {{37, 29, 0, 14.5}, {18.5, 0}}}}}};
  const auto text = [&](const std::string& type) {
    return seeing_tokenizer()->decode(seeing({}, type).encode(media_row(row)).at(0).ids);
  };
  test::expect_says(text("qwen2_vl"), "Where is <|object_ref_start|>the dog<|object_ref_end|>?");
  test::expect_says(text("qwen2_vl"),
                    "At <|box_start|>(0,500),(1000,1000)<|box_end|>, its middle at <|box_start|>(500,0)");
  test::expect_says(text("qwen2_5_vl"), "At <|box_start|>(0,16),(40,32)<|box_end|>");  // of 40 x 32 pixels
  // Back again, in the picture's own pixels, what lies outside cut off and what has no area left out.
  const auto boxes = [](const std::string& type, const std::string& answer) {
    return pixel_boxes(answer, {37, 29}, reader_of(*seeing_tokenizer(), type)->processor());
  };
  const std::vector<std::array<int64_t, 4>> one = {{0, 15, 37, 29}};
  EXPECT_EQ(boxes("qwen2_vl", "At <|box_start|>(0,510),(1000,1000)<|box_end|>."), one);
  EXPECT_EQ(boxes("qwen2_vl", "(1200,1000),(-5,510)"), one);
  EXPECT_EQ(boxes("qwen2_5_vl", "(0,17),(40,32)"), one);  // of the picture as it is seen: 40 x 32
  EXPECT_TRUE(boxes("qwen2_vl", "(0,500),(0,1000) and [2, 2]").empty());
  // To rewards the row's own answer is said in the same words.
  const Sample asked = seeing().encode_prompt(media_row(row));
  test::expect_says(parse_json(asked.row, "columns")["solution"].get<std::string>(),
                    "At <|box_start|>(0,500),(1000,1000)");
  const auto error = [&](const Json& objects) {
    Json bad = row;
    bad["objects"] = objects;
    return error_of([&] { seeing().encode(media_row(bad)); });
  };
  test::expect_says(error({{"ref", {"a"}}, {"bbox", {{0, 0, 1, 1}}}}),
                    "key 'objects.bbox': more <bbox> tags than boxes (1)");
  test::expect_says(error({{"ref", {"a"}}, {"bbox", {{38, 0, 99, 1}, {0, 0}}}}),
                    "key 'objects.bbox[0]': [38,0,99,1] lies outside of its image of 37 x 29 pixels");
  test::expect_says(error({{"ref", {"a"}}, {"bbox", {{0, 0, 1, 1}, {0, 0}}}, {"image_id", {0, 3}}}),
                    "it is in image 3, but the row has 1 images");
}

TEST(RowMedia, ABoxThatReachesOutIsCutAndSaidSo) {
  const Json row = {{"query", "<image>Where?"},
                    {"response", "At <bbox>."},
                    {"images", {"plain.jpg"}},
                    {"objects", {{"ref", Json::array()}, {"bbox", {{-1, 0, 38, 14.5}}}}}};
  Encoder encoder = seeing();
  std::vector<std::string> remarks;
  encoder.on_remark([&](const Origin&, const std::string& text) { remarks.push_back(text); });
  const std::string text = seeing_tokenizer()->decode(encoder.encode(media_row(row)).at(0).ids);
  test::expect_says(text, "At <|box_start|>(0,0),(1000,500)<|box_end|>.");
  ASSERT_EQ(remarks.size(), 1u);
  test::expect_says(remarks[0], "objects.bbox[0]: [-1,0,38,14.5] reaches out of its image and is cut at its edge");
}

TEST(RowMedia, OneMediumHasNoSettingsOfItsOwn) {
  const auto error = [](const Json& part) {
    return error_of([&] {
      media_row({{"messages",
                  {{{"role", "user"}, {"content", Json::array({part, {{"type", "text"}, {"text", "What?"}}})}},
                   {{"role", "assistant"}, {"content", "a"}}}}});
    });
  };
  test::expect_says(error({{"type", "image"}, {"image", "plain.jpg"}, {"max_pixels", 1000}}), "content.max_pixels");
  test::expect_says(error({{"type", "video"}, {"video", "clip.mp4"}, {"video_start", 2}}), "content.video_start");
}

// A query and its documents, each with pictures of its own.
TEST(RowMedia, TalksHaveTheirOwnPictures) {
  const Json document = {{{"role", "assistant"}, {"content", "<image>"}}};
  const Row row = media_row({{"messages", {{{"role", "user"}, {"content", "Which is like <image>?"}}}},
                             {"images", {"plain.jpg"}},
                             {"positive_messages", {document}},
                             {"positive_images", {"grey.jpg"}},
                             {"negative_messages", {{{{"role", "assistant"}, {"content", "none"}}}, document}},
                             {"negative_images", {"plain.png"}}});
  const auto good = documents_of(row, "positive"), bad = documents_of(row, "negative");
  ASSERT_EQ(good.size(), 1u);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(good[0]["images"], Json({"grey.jpg"}));
  EXPECT_FALSE(bad[0].contains("images"));
  EXPECT_EQ(bad[1]["images"], Json({"plain.png"}));
  const Encoder encoder = seeing();
  const Sample query = encoder.encode_text(row, query_of(row)),
               pair = encoder.encode_text(row, query_and_document(query_of(row), bad[1]));
  EXPECT_EQ(query.media.size(), 1u);
  EXPECT_EQ(count_of(query, kImagePad), 20);
  ASSERT_EQ(pair.media.size(), 2u);
  EXPECT_EQ(count_of(pair, kImagePad), 40);
  EXPECT_NE(pair.media[0].digest, pair.media[1].digest);
}

TEST(RowMedia, DumpsTransformersTensors) {
  const TemporaryFolder folder;
  const auto tokenizer = seeing_tokenizer();
  const auto reader = reader_of(*tokenizer);
  MediaDump dump(folder.path() / "media.safetensors");
  const Row row = media_row({{"query", "q"}, {"response", "a"}, {"images", {"plain.jpg", "grey.jpg"}}});
  Json messages = with_media_tags(row, row.value["messages"]);
  dump.add(4, reader->read(row, messages), reader->processor());
  dump.write();
  const std::string bytes = read_file(folder.path() / "media.safetensors");
  const auto header = parse_safetensors_header(reinterpret_cast<const std::byte*>(bytes.data()),
                                               static_cast<int64_t>(bytes.size()), "dump");
  EXPECT_EQ(header.tensors.at("pixel_values.4").shape, (std::vector<int64_t>{160, 96}));
  EXPECT_EQ(header.tensors.at("image_grid_thw.4").shape, (std::vector<int64_t>{2, 3}));
}

}  // namespace
}  // namespace apus
