// SPDX-License-Identifier: Apache-2.0
// What a model says aloud, held against transformers' own: tests/peers/make_speech_numbers.py.
#include "engine/speaker.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/load_speech.h"
#include "models/seeing_decoder.h"
#include "models/spec/media_text.h"
#include "tests/folder.h"
#include "tests/paths.h"
#include "tests/refusal.h"

namespace apus {
namespace {

const std::filesystem::path all = test::source_dir() / "tests/data/speech", folder = all / "qwen3_omni_moe";

struct Golden {
  explicit Golden(const std::filesystem::path& from = folder)
      : golden(Json::parse(read_file(from / "golden.json", 1 << 20))),
        tensors(SafetensorsFile::open(from / "golden.safetensors")),
        speech(load_speech(from / "checkpoint", at::kFloat, at::kCPU)),
        model(load_model(from / "checkpoint", {})) {}
  SpokenText text(const Json& chat, size_t number) const {
    SpokenText out{.prompt = chat["prompt"].get<std::vector<int32_t>>()};
    const auto all = chat["tokens"].get<std::vector<int32_t>>();
    // transformers never reads the last token of an answer.
    out.answer.assign(all.begin() + static_cast<int64_t>(out.prompt.size()), all.end() - 1);
    if (chat["grid"].is_null()) return out;
    const at::Tensor pixels = tensors->tensor(str(number, ".pixel_values"));
    auto content = std::make_shared<MediaContent>();
    content->shape = {pixels.size(0), pixels.size(1)}, content->grid = chat["grid"].get<std::array<int64_t, 3>>();
    content->values.assign(pixels.data_ptr<float>(), pixels.data_ptr<float>() + pixels.numel());
    content->digest = "picture";
    out.media = placed_media(out.prompt, {content}, dynamic_cast<const SeeingDecoder&>(*model).seeing());
    return out;
  }
  const Json golden;
  const std::shared_ptr<SafetensorsFile> tensors;
  SpeakingParts speech;
  std::unique_ptr<Model> model;
};

VoiceWish likeliest(const Speaker& speaker, const std::string& voice, int64_t frames) {
  VoiceWish wish = speaker.usual();
  wish.voice = voice, wish.most_frames = frames;
  wish.first.temperature = wish.rest.temperature = 0;
  return wish;
}

void expect_the_same_codes(const Golden& g) {
  const Speaker speaker(*g.speech.talker, *g.speech.vocoder, at::TensorOptions().dtype(at::kFloat));
  for (size_t i = 0; i < g.golden["chats"].size(); ++i) {
    const Json& chat = g.golden["chats"][i];
    const at::Tensor codes = g.tensors->tensor(str(i, ".codes"));
    const SpokenText text = g.text(chat, i);
    const TalkerPrompt prompt = speaker.prompt(*g.model, text, chat["voice"]);
    const at::Tensor said = speaker.frames(prompt, likeliest(speaker, chat["voice"], codes.size(0)));
    EXPECT_TRUE(said.equal(codes)) << "chat " << i << ":\n" << said << "\nexpected\n" << codes;
    EXPECT_FALSE(speaker.prompt(*g.model, text, "chelsie").row_TD.equal(prompt.row_TD)) << "voices are not told apart";
  }
}

TEST(Speaker, SaysTheSameCodesAsTransformers) { expect_the_same_codes(Golden()); }

TEST(Speaker, SoundsAsTransformers) {
  const Golden g;
  VocoderSpec short_pieces = g.speech.spec->vocoder;
  short_pieces.frames = g.golden["frames"], short_pieces.context = g.golden["context"];
  Vocoder in_pieces(short_pieces);
  load_vocoder(in_pieces, TensorFolder(folder / "checkpoint"));
  for (size_t i = 0; i < g.golden["chats"].size(); ++i) {
    const at::Tensor codes = g.tensors->tensor(str(i, ".codes"));
    const SoundMaker &whole = *g.speech.vocoder, &pieces = in_pieces;
    for (const auto& [vocoder, name] : {std::pair{&whole, ".whole"}, std::pair{&pieces, ".sound"}}) {
      const at::Tensor expected = g.tensors->tensor(str(i, name)), sound = vocoder->sound(codes, {});
      ASSERT_EQ(sound.sizes(), expected.sizes());
      EXPECT_LT((sound - expected).abs().max().item<double>(), 2e-4) << "chat " << i << name;
    }
  }
}

TEST(Speaker, SaysNothingOfAnEmptyAnswerAndStopsWhenTold) {
  const Golden g;
  const Speaker speaker(*g.speech.talker, *g.speech.vocoder, at::TensorOptions().dtype(at::kFloat));
  SpokenText text = g.text(g.golden["chats"][0], 0);
  int64_t asked = 0;
  const TalkerPrompt prompt = speaker.prompt(*g.model, text, "");
  EXPECT_EQ(speaker.frames(prompt, likeliest(speaker, "", 50), [&] { return ++asked > 3; }).size(0), 3);
  text.answer.clear();
  const at::Tensor none = speaker.frames(speaker.prompt(*g.model, text, ""), likeliest(speaker, "", 5));
  EXPECT_EQ(none.size(0), 0);
  EXPECT_TRUE(speaker.sound(none).empty());
  test::expect_says(test::refusal(Fault::Usage, [&] { speaker.prompt(*g.model, text, "nobody"); }),
                    "this model has chelsie, ethan");
}

TEST(Speaker, SpeaksPieceByPieceAsTheVocoderDecodesPieces) {
  const Golden g;
  const Speaker speaker(*g.speech.talker, *g.speech.vocoder, at::TensorOptions().dtype(at::kFloat));
  const TalkerPrompt prompt = speaker.prompt(*g.model, g.text(g.golden["chats"][0], 0), "");
  const VoiceWish wish = likeliest(speaker, "", 2 * Speaker::kPiece + 5);
  const at::Tensor codes = speaker.frames(prompt, wish);
  ASSERT_EQ(codes.size(0), wish.most_frames) << "this voice does not end by itself";
  std::vector<float> heard;
  int64_t pieces = 0;
  speaker.speak_on(prompt, wish, {}, [&](const std::vector<float>& piece) {
    heard.insert(heard.end(), piece.begin(), piece.end());
    ++pieces;
  });
  VocoderSpec short_pieces = g.speech.spec->vocoder;
  short_pieces.frames = Speaker::kPiece;
  Vocoder in_pieces(short_pieces);
  load_vocoder(in_pieces, TensorFolder(folder / "checkpoint"));
  EXPECT_EQ(pieces, 3);
  const at::Tensor expected = in_pieces.sound(codes);
  ASSERT_EQ(static_cast<int64_t>(heard.size()), expected.numel());
  EXPECT_LT((at::tensor(heard) - expected).abs().max().item<double>(), 1e-6);
}

TEST(Speaker, DrawsTheSameWithTheSameSeed) {
  const Golden g;
  const Speaker speaker(*g.speech.talker, *g.speech.vocoder, at::TensorOptions().dtype(at::kFloat));
  const TalkerPrompt prompt = speaker.prompt(*g.model, g.text(g.golden["chats"][0], 0), "");
  const auto with = [&](uint64_t seed) {
    VoiceWish wish = speaker.usual();
    wish.most_frames = 8, wish.seed(seed);
    return speaker.frames(prompt, wish);
  };
  EXPECT_TRUE(with(1).equal(with(1)));
  EXPECT_FALSE(with(1).equal(with(2)));
}

// Qwen2.5-Omni: tests/peers/make_flow_speech_numbers.py.
TEST(FlowSpeaker, SaysTheSameCodesAsTransformers) { expect_the_same_codes(Golden(all / "qwen2_5_omni")); }

TEST(FlowSpeaker, SoundsAsTransformersFromTheSameNoise) {
  const Golden g(all / "qwen2_5_omni");
  const auto& vocoder = dynamic_cast<const FlowVocoder&>(*g.speech.vocoder);
  for (size_t i = 0; i < g.golden["chats"].size(); ++i) {
    const auto expected = [&](const char* what) { return g.tensors->tensor(str(i, what)); };
    const at::Tensor mel = vocoder.mel(expected(".codes"), "ethan", expected(".noise"));
    ASSERT_EQ(mel.sizes(), expected(".mel").sizes());
    EXPECT_LT((mel - expected(".mel")).abs().max().item<double>(), 2e-4) << "chat " << i;
    const at::Tensor sound = vocoder.wave(mel);
    ASSERT_EQ(sound.sizes(), expected(".sound").sizes());
    EXPECT_LT((sound - expected(".sound")).abs().max().item<double>(), 1e-4) << "chat " << i;
    EXPECT_GT((vocoder.mel(expected(".codes"), "chelsie", expected(".noise")) - mel).abs().max().item<double>(), 0.01)
        << "another voice sounds the same";
  }
}

TEST(FlowSpeaker, SoundFollowsTheSeedAndTheVoice) {
  const Golden g(all / "qwen2_5_omni");
  const at::Tensor codes = g.tensors->tensor("0.codes");
  const auto with = [&](const std::string& voice, uint64_t seed) {
    return g.speech.vocoder->sound(codes, {.voice = voice, .seed = seed});
  };
  EXPECT_TRUE(with("", 1).equal(with("chelsie", 1))) << "the first voice in the alphabet is the usual one";
  EXPECT_FALSE(with("", 1).equal(with("", 2)));
  EXPECT_FALSE(with("", 1).equal(with("ethan", 1)));
}

TEST(FlowSpeaker, AsksForTheFileOfVoices) {
  const test::Folder copy;
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(all / "qwen2_5_omni/checkpoint" / file, copy.path / file);
  test::expect_says(test::refusal(Fault::Model, [&] { load_speech(copy.path, at::kFloat, at::kCPU); }),
                    "spk_dict.pt is missing");
}

// Qwen3-TTS, held against its authors' own program: tests/peers/make_tts_numbers.py.
TEST(LoneSpeaker, SaysAndSoundsAsItsAuthorsProgram) {
  const auto own = all / "qwen3_tts";
  const SpeakingParts speech = load_speech(own / "checkpoint", at::kFloat, at::kCPU);
  const Speaker speaker(*speech.talker, *speech.vocoder, at::TensorOptions().dtype(at::kFloat));
  const Json cases = Json::parse(read_file(own / "golden.json", 1 << 20))["cases"];
  const auto tensors = SafetensorsFile::open(own / "golden.safetensors");
  constexpr int32_t turn = 381, user = 380, assistant = 379, line = 378, end = 377;
  for (size_t i = 0; i < cases.size(); ++i) {
    SpokenText text{.prompt = {}, .answer = {turn, assistant, line}};
    for (const Json& id : cases[i]["text"]) text.answer.push_back(id);
    text.answer.insert(text.answer.end(), {end, line, turn, assistant, line});
    if (const Json& how = cases[i]["instruct"]; !how.is_null()) {
      text.prompt = {turn, user, line};
      for (const Json& id : how) text.prompt.push_back(id);
      text.prompt.insert(text.prompt.end(), {end, line});
    }
    const at::Tensor codes = tensors->tensor(str(i, ".codes")), sound = tensors->tensor(str(i, ".sound"));
    VoiceWish wish = likeliest(speaker, cases[i]["voice"], codes.size(0));
    wish.language = cases[i]["language"];
    const at::Tensor said = speaker.frames(speaker.prompt(text, wish), wish);
    EXPECT_TRUE(said.equal(codes)) << "case " << i << ":\n" << said << "\nexpected\n" << codes;
    const at::Tensor heard = at::tensor(speaker.sound(codes));
    ASSERT_EQ(heard.sizes(), sound.sizes());
    EXPECT_LT((heard - sound).abs().max().item<double>(), 2e-4) << "case " << i;
  }
  SpokenText nothing{.prompt = {}, .answer = {turn, assistant, line, end, line, turn, assistant, line}};
  test::expect_says(test::refusal(Fault::Data, [&] { speaker.prompt(nothing, {}); }), "nothing to speak");
}

// Qwen3-TTS Base, which speaks as a recording does: make_tts_numbers.py --clone.
struct Cloning {
  const std::filesystem::path from = all / "qwen3_tts_base";
  const SpeakingParts speech = load_speech(from / "checkpoint", at::kFloat, at::kCPU);
  const Speaker speaker{*speech.talker, *speech.vocoder, at::TensorOptions().dtype(at::kFloat)};
  const Json cases = Json::parse(read_file(from / "golden.json", 1 << 20))["cases"];
  const std::shared_ptr<SafetensorsFile> tensors = SafetensorsFile::open(from / "golden.safetensors");
};

TEST(LoneSpeaker, LearnsAVoiceAsItsAuthorsProgram) {
  const Cloning c;
  const at::NoGradGuard no_grad;
  const at::Tensor sample = c.tensors->tensor("sample"), row = c.speech.reader->speaker(sample);
  EXPECT_LT((row - c.tensors->tensor("row")).abs().max().item<double>(), 1e-4);
  const at::Tensor frames = c.speech.reader->codes(sample);
  EXPECT_TRUE(frames.equal(c.tensors->tensor("frames"))) << "differ: " << (frames != c.tensors->tensor("frames")).sum();
  test::expect_says(test::refusal(Fault::Data, [&] { c.speech.reader->speaker(sample.narrow(0, 0, 100)); }),
                    "too short");
}

TEST(LoneSpeaker, SpeaksInALearntVoice) {
  const Cloning c;
  for (size_t i = 0; i < c.cases.size(); ++i) {
    const Json& asked = c.cases[i];
    SpokenText text{.prompt = {}, .answer = {381, 379, 378}};
    for (const Json& id : asked["text"]) text.answer.push_back(id);
    text.answer.insert(text.answer.end(), {377, 378, 381, 379, 378});
    LearntVoice like{c.tensors->tensor("row").unsqueeze(0)};
    if (!asked["words"].is_null())
      like.text = asked["words"].get<std::vector<int64_t>>(), like.code_FG = c.tensors->tensor("frames");
    const at::Tensor codes = c.tensors->tensor(str(i, ".codes")), sound = c.tensors->tensor(str(i, ".sound"));
    VoiceWish wish = likeliest(c.speaker, "", codes.size(0));
    wish.language = asked["language"], wish.like = std::make_shared<LearntVoice>(like);
    const at::Tensor said = c.speaker.frames(c.speaker.prompt(text, wish), wish);
    EXPECT_TRUE(said.equal(codes)) << "case " << i << ":\n" << said << "\nexpected\n" << codes;
    const at::Tensor heard = at::tensor(c.speaker.sound(codes, wish));
    ASSERT_EQ(heard.sizes(), sound.sizes()) << "case " << i;
    EXPECT_LT((heard - sound).abs().max().item<double>(), 5e-4) << "case " << i;
  }
}

}  // namespace
}  // namespace apus
