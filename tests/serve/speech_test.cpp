// SPDX-License-Identifier: Apache-2.0
// Spoken answers: what a voice is given to say, and how clients get its sound.
#include <gtest/gtest.h>

#include "base/base64.h"
#include "media/sound.h"
#include "media/sound_out.h"
#include "media/wav.h"
#include "serve/speech_request.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {

using test::ask;

TEST(Wav, IsReadAgainAsItWas) {
  const std::vector<float> samples = {0, 0.5, -0.5, 1, -1, 2, -2};
  const std::string bytes = wav_bytes(samples, kSoundRate);
  EXPECT_EQ(bytes.size(), 44 + 2 * samples.size());
  const std::vector<float> again = decode_sound(bytes);
  ASSERT_EQ(again.size(), samples.size());
  for (size_t i = 0; i < samples.size(); ++i) EXPECT_NEAR(again[i], std::clamp(samples[i], -1.0F, 1.0F), 1e-4);
  EXPECT_EQ(pcm_bytes(samples), bytes.substr(44));
}

TEST(Speech, RequestsSayWhatIsPossible) {
  const SpeechCall call = read_speech_request(
      {{"input", "Hello"}, {"voice", "ethan"}, {"response_format", "pcm"}, {"speed", 1}, {"seed", 7}, {"model", "m"}});
  EXPECT_EQ(call.text, "Hello");
  EXPECT_EQ(call.form, "pcm");
  EXPECT_EQ(read_speech_request({{"input", "x"}}).form, "");
  EXPECT_EQ(call.seed, 7u);
  for (const Json& wrong : {Json{{"input", ""}}, Json{{"voice", "ethan"}}, Json{{"input", "x"}, {"speed", 2}},
                            Json{{"input", "x"}, {"response_format", "midi"}}, Json{{"input", "x"}, {"colour", "red"}}})
    EXPECT_THROW(read_speech_request(wrong), ApiError) << json_text(wrong);
}

// One sample for each token that it says.
class Tongue final : public TextVoice {
 public:
  std::vector<std::string> voices() const override { return {"ethan"}; }
  VoiceWish usual() const override { return {}; }
  void check(const std::string& voice, const std::string& language) const override {
    require(language.empty() || language == "english", Fault::Usage, "no such language");
    require(voice.empty() || voice == "ethan", Fault::Usage, "there is no voice '", voice, "'; this model has ethan");
  }
  std::vector<float> speak(const SpokenText& text, const VoiceWish& wish, const std::function<bool()>&) override {
    said = text, voice = wish.voice, as_learnt = wish.like != nullptr;
    return std::vector<float>(text.answer.size(), 0.25F);
  }
  void speak_on(const SpokenText& text, const VoiceWish&, const std::function<bool()>&,
                const std::function<void(std::vector<float>)>& heard) override {
    for (size_t i = 0; i < text.answer.size(); ++i) heard({0.25F});
  }
  bool clones() const override { return learns; }
  std::shared_ptr<const LearntVoice> learn(const std::vector<float>& samples, const std::string& words) const override {
    heard = samples, heard_words = words;
    return {std::shared_ptr<void>(), reinterpret_cast<const LearntVoice*>(this)};  // nobody looks into it
  }
  SpokenText said;
  std::string voice;
  bool learns = false, as_learnt = false;
  mutable std::vector<float> heard;
  mutable std::string heard_words;
};

struct SpeakingServed : test::Served {
  Tongue tongue;
  std::shared_ptr<Api> speaking() {
    ServiceSpec spec = service();
    spec.voice = &tongue, spec.speaker = "ethan";
    return std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(spec), workers);
  }
};

TEST(Speech, ATextIsSpokenAsAnAnswer) {
  SpeakingServed s;
  const auto api = s.speaking();
  const HttpAnswer answer = ask(*api, "POST", "/v1/audio/speech",
                                R"({"input": "Good morning", "instructions": "Softly.", "response_format": "wav"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.content_type, "audio/wav");
  const auto words = s.tokenizer->encode("Good morning");
  EXPECT_EQ(answer.body, wav_bytes(std::vector<float>(words.size(), 0.25F), 24000));
  EXPECT_EQ(s.tongue.said.answer, words);
  EXPECT_EQ(s.tongue.voice, "ethan");
  EXPECT_EQ(s.tokenizer->decode(s.tongue.said.prompt, false),
            "<|im_start|>user\nSoftly.<|im_end|>\n<|im_start|>assistant\n");
  const HttpAnswer usual = ask(*api, "POST", "/v1/audio/speech", R"({"input": "Good morning"})");
  EXPECT_EQ(usual.content_type, sound_media_type(usual_sound_form()));
  EXPECT_EQ(usual.body, sound_bytes(usual_sound_form(), std::vector<float>(words.size(), 0.25F), 24000));
  api->stop();
}

TEST(Speech, AStreamIsHeardPieceByPiece) {
  SpeakingServed s;
  const auto api = s.speaking();
  const HttpAnswer answer =
      ask(*api, "POST", "/v1/audio/speech", R"({"input": "Good morning", "stream": true, "response_format": "wav"})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.content_type, "audio/wav");
  const std::vector<float> samples(s.tokenizer->encode("Good morning").size(), 0.25F);
  EXPECT_EQ(answer.body, open_wav_head(24000) + pcm_bytes(samples));
  EXPECT_EQ(decode_sound(answer.body, 24000).size(), samples.size()) << "a head that leaves the size open is read";
  api->stop();
}

TEST(Speech, ARequestBringsAVoice) {
  SpeakingServed s;
  const auto api = s.speaking();
  const std::string recording = base64(wav_bytes({0.5, -0.5, 0.25}, 24000));
  const auto asked = [&](const std::string& more) {
    return ask(*api, "POST", "/v1/audio/speech", R"({"input": "x")" + more + "}");
  };
  const auto param = [](const HttpAnswer& answer) { return Json::parse(answer.body)["error"]["param"]; };
  const std::string with_voice = R"(, "ref_audio": "data:audio/wav;base64,)" + recording + "\"";
  EXPECT_EQ(param(asked(with_voice)), "ref_audio") << "this voice learns no others";
  s.tongue.learns = true;
  EXPECT_EQ(param(asked("")), "ref_audio") << "there is none to learn";
  EXPECT_EQ(param(asked(R"(, "ref_text": "Hello")")), "ref_text");
  EXPECT_EQ(param(asked(R"(, "ref_audio": "/etc/passwd")")), "ref_audio");
  EXPECT_EQ(param(asked(R"(, "ref_audio": "data:audio/wav;base64,AAAA")")), "ref_audio");
  EXPECT_EQ(asked(R"(, "ref_audio": ")" + recording + "\"").status, 200) << "base64 by itself";
  const HttpAnswer answer = asked(with_voice + R"(, "ref_text": "Hello")");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(s.tongue.as_learnt);
  EXPECT_EQ(s.tongue.heard_words, "Hello");
  ASSERT_EQ(s.tongue.heard.size(), 3u);
  EXPECT_NEAR(s.tongue.heard[1], -0.5, 1e-4);
  api->stop();
}

TEST(Speech, AChatIsAnsweredInWordsAndSound) {
  SpeakingServed s;
  const auto api = s.speaking();
  const HttpAnswer answer = ask(*api, "POST", "/v1/chat/completions",
                                R"({"messages": [{"role": "user", "content": "Hi"}], "modalities": ["text", "audio"],
                                    "audio": {"voice": "ethan", "format": "pcm16"}})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json choice = Json::parse(answer.body)["choices"][0];
  const auto words = s.tokenizer->encode(s.answer);
  EXPECT_EQ(choice["message"]["audio"]["transcript"], s.answer);
  EXPECT_EQ(from_base64(choice["message"]["audio"]["data"].get<std::string>()),
            pcm_bytes(std::vector<float>(words.size(), 0.25F)));
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_FALSE(choice.contains("token_ids"));
  EXPECT_EQ(s.tongue.said.answer, words);
  EXPECT_EQ(s.tongue.said.prompt, s.engine.seen()[0].prompt);
  api->stop();
}

TEST(Speech, AModelThatOnlySpeaksSaysSo) {
  SpeakingServed s;
  ServiceSpec spec = s.service();
  spec.voice = &s.tongue, spec.task.name = "speech";
  const auto api = std::make_shared<Api>(ApiSpec{.verbose = false}, std::move(spec), s.workers);
  const HttpAnswer answer =
      ask(*api, "POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}]})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("it speaks: /v1/audio/speech"), std::string::npos) << answer.body;
  api->stop();
}

TEST(Speech, WhatCannotBeIsRefused) {
  SpeakingServed s;
  const auto api = s.speaking();
  const auto refused = [&](Api& by, const std::string& path, const std::string& body, const std::string& param) {
    const HttpAnswer answer = ask(by, "POST", path, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["error"]["param"], param) << answer.body;
  };
  const std::string chat = R"({"messages": [{"role": "user", "content": "Hi"}], "modalities": ["text", "audio"])";
  refused(*api, "/v1/audio/speech", R"({"input": "x", "voice": "alloy"})", "voice");
  refused(*api, "/v1/audio/speech", R"({"input": "x", "language": "klingon"})", "voice");
  refused(*api, "/v1/chat/completions", chat + R"(, "audio": {"voice": "alloy"}})", "audio.voice");
  refused(*api, "/v1/chat/completions", chat + R"(, "stream": true})", "stream");
  refused(*api, "/v1/chat/completions", chat + R"(, "n": 2})", "n");
  refused(*api, "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "Hi"}], "modalities": ["smell"]})",
          "modalities");
  const auto silent = s.api();
  refused(*silent, "/v1/audio/speech", R"({"input": "x"})", "model");
  refused(*silent, "/v1/chat/completions", chat + "}", "modalities");
  api->stop();
}

}  // namespace
}  // namespace apus
