// SPDX-License-Identifier: Apache-2.0
// Sounds in forms: how such bodies are read, and what a model that hears is asked and answers.
#include <gtest/gtest.h>

#include "media/ears.h"
#include "serve/form_data.h"
#include "serve/transcription_request.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {

using test::ask;

constexpr const char* kType = "multipart/form-data; boundary=\"x y\"";

std::string part(const std::string& head, const std::string& value) {
  return "--x y\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + value + "\r\n";
}
const std::string kEnd = "--x y--\r\n";

TEST(FormData, PartsAreFoundWhateverTheyHold) {
  const std::string bytes("RIFF\0\r\n--x\r\n\r\n", 14),
      body = part("name=model", "tiny") + part("filename=\"a;\\\"b\\\".wav\"; name=\"file\"", bytes) +
             part("name=\"empty\"", "") + kEnd;
  const auto parts = read_form_data(kType, body);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].name, "model");
  EXPECT_EQ(parts[0].value, "tiny");
  EXPECT_EQ(parts[0].file, "");
  EXPECT_EQ(parts[1].name, "file");
  EXPECT_EQ(parts[1].file, "a;\"b\".wav");
  EXPECT_EQ(parts[1].value, bytes);
  EXPECT_EQ(parts[2].value, "");
  EXPECT_EQ(read_form_data("Multipart/Form-Data;charset=utf-8; Boundary=b", "junk\r\n--b--").size(), 0u);
}

TEST(FormData, WhatIsNoneIsRefused) {
  const std::string good = part("name=a", "1") + kEnd;
  for (const auto& [type, body] : {std::pair<std::string, std::string>{"application/json", good},
                                   {"multipart/form-data", good},
                                   {kType, ""},
                                   {kType, "--x y"},
                                   {kType, "--x y\r\n"},
                                   {kType, part("name=a", "1")},
                                   {kType, part("size=3", "1") + kEnd},
                                   {kType, "--x y\r\nno head\r\n--x y--"},
                                   {"multipart/form-data; boundary=" + std::string(71, 'b'), good}})
    EXPECT_THROW(read_form_data(type, body), ApiError) << type << "\n" << body;
  std::string many;
  for (int i = 0; i < 65; ++i) many += part("name=a", "1");
  EXPECT_THROW(read_form_data(kType, many + kEnd), ApiError);
}

TEST(Transcriptions, SettingsAreTexts) {
  const TranscriptionCall call = read_transcription_form(
      {{"file", "data:"}, {"language", "en"}, {"temperature", "0.5"}, {"response_format", "text"}, {"prompt", "Apus"}});
  EXPECT_EQ(call.temperature, 0.5);
  EXPECT_TRUE(call.plain);
  EXPECT_EQ(call.hints, "Apus");
  for (const auto& [key, value] : {std::pair{"temperature", "warm"},
                                   {"temperature", "3"},
                                   {"response_format", "srt"},
                                   {"stream", "true"},
                                   {"colour", "red"}})
    EXPECT_THROW(read_transcription_form({{"file", "data:"}, {key, value}}), ApiError) << key;
  EXPECT_THROW(read_transcription_form(Json::object()), ApiError);
}

// Hears each tenth of a second as one token.
class Ears final : public EarsProcessor {
 public:
  explicit Ears(int64_t seconds = 0) : EarsProcessor(std::nullopt), seconds_(seconds) {}
  PreparedMedia sound(const std::vector<float>& samples) const override {
    auto content = std::make_shared<MediaContent>();
    content->type = MediaType::Audio;
    content->digest = std::to_string(samples.size());
    PreparedMedia out{content, "<|vision_pad|>", kPad, {}};
    out.runs.emplace_back(samples.size() / 1600, kPad);
    return out;
  }
  Transcription transcription(const std::string& language) const override {
    if (language == "xx") fail(Fault::Data, "xx is not known");
    return {.ask = "Write it down.",
            .begin = language.empty() ? "" : "In " + language + ":",
            .mark = "SAID",
            .seconds = seconds_};
  }
  std::vector<int32_t> media_tokens() const override { return {kPad}; }

 private:
  static constexpr int32_t kPad = 2033;
  const int64_t seconds_;
};

// Silence.
std::string wave(uint32_t halves = 1) {
  const auto word = [](uint32_t n, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(n >> (8 * i) & 255);
    return out;
  };
  const uint32_t bytes = 16000 * halves;
  const std::string data(bytes, '\0');
  return "RIFF" + word(36 + bytes, 4) + "WAVEfmt " + word(16, 4) + word(1, 2) + word(1, 2) + word(16000, 4) +
         word(32000, 4) + word(2, 2) + word(16, 2) + "data" + word(bytes, 4) + data;
}

struct HearingServed : test::Served {
  HearingServed() { answer = "english SAID  Hello, world!\n"; }
  std::shared_ptr<Api> hearing(int64_t seconds = 0) {
    ServiceSpec spec = service();
    spec.media = std::make_shared<const MediaReader>(std::make_shared<Ears>(seconds), "");
    return std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(spec), workers);
  }
  static HttpAnswer send(Api& api, const std::string& more = "", uint32_t halves = 1) {
    return ask(api, "POST", "/v1/audio/transcriptions",
               part("name=\"file\"; filename=\"a.wav\"", wave(halves)) + part("name=\"model\"", "tiny") + more + kEnd,
               {{"content-type", kType}});
  }
  std::string prompt(size_t request) const { return tokenizer->decode(engine.seen().at(request).prompt, false); }
};

TEST(Transcriptions, AreAnswersOfAModelThatHears) {
  HearingServed s;
  const auto api = s.hearing();
  const HttpAnswer plain = HearingServed::send(*api);
  ASSERT_EQ(plain.status, 200) << plain.body;
  const Json said = Json::parse(plain.body);
  EXPECT_EQ(said["text"], "Hello, world!");
  EXPECT_EQ(said["usage"]["type"], "tokens");
  EXPECT_GT(said["usage"]["input_tokens"], 5);
  EXPECT_NE(s.prompt(0).find("<|vision_pad|><|vision_pad|><|vision_pad|><|vision_pad|><|vision_pad|>"),
            std::string::npos);
  EXPECT_NE(s.prompt(0).find("Write it down."), std::string::npos);
  EXPECT_EQ(s.engine.seen()[0].sampling.temperature, 0);

  const HttpAnswer text = HearingServed::send(*api, part("name=response_format", "text") + part("name=language", "en") +
                                                        part("name=prompt", "Apus, not opus."));
  EXPECT_EQ(text.body, "Hello, world!\n");
  EXPECT_EQ(text.content_type, "text/plain; charset=utf-8");
  EXPECT_TRUE(s.prompt(1).ends_with("assistant\nIn en:")) << s.prompt(1);
  EXPECT_NE(s.prompt(1).find("Apus, not opus."), std::string::npos);
}

// A model that hears a second at a time is asked of each piece.
TEST(Transcriptions, LongSoundsAreHeardInPieces) {
  HearingServed s;
  const auto api = s.hearing(1);
  const HttpAnswer whole = HearingServed::send(*api, "", 5);
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(Json::parse(whole.body)["text"], "Hello, world!\n  Hello, world!\n  Hello, world!");
  ASSERT_EQ(s.engine.seen().size(), 3u);
  EXPECT_EQ(HearingServed::send(*api, "", 2).status, 200);
  EXPECT_EQ(s.engine.seen().size(), 4u) << "a second is one piece";
}

TEST(Transcriptions, WhatCannotBeIsRefused) {
  HearingServed s;
  const auto api = s.hearing();
  const HttpAnswer unknown = HearingServed::send(*api, part("name=language", "xx"));
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(Json::parse(unknown.body)["error"]["param"], "language");
  EXPECT_EQ(HearingServed::send(*api, part("name=model", "tiny")).status, 400) << "twice";
  EXPECT_EQ(ask(*api, "POST", "/v1/audio/transcriptions", "{}", {{"content-type", "application/json"}}).status, 400);
  const HttpAnswer blind = HearingServed::send(*s.api());
  EXPECT_EQ(blind.status, 400);
  EXPECT_NE(blind.body.find("reads text only"), std::string::npos) << blind.body;
}

}  // namespace
}  // namespace apus
