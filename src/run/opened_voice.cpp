// SPDX-License-Identifier: Apache-2.0
#include "run/opened_voice.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "checkpoint/load_speech.h"
#include "engine/speaker.h"
#include "media/sound.h"
#include "models/spec/speech_spec.h"

namespace apus {

namespace {
// One speaks at a time.
class OpenedVoice : public TextVoice {
 public:
  OpenedVoice(SpeakingParts speech, at::TensorOptions options)
      : speech_(std::move(speech)), speaker_(*speech_.talker, *speech_.vocoder, options) {}
  std::vector<std::string> voices() const override { return speaker_.voices(); }
  VoiceWish usual() const override { return speaker_.usual(); }
  void check(const std::string& voice, const std::string& language) const override {
    voice_word(*speech_.spec, voice), language_word(*speech_.spec, language, voice);
  }
  std::vector<float> speak(const SpokenText& text, const VoiceWish& wish,
                           const std::function<bool()>& stopped) override {
    const TalkerPrompt prompt = prompt_of(text, wish);
    const std::lock_guard one_at_a_time(mutex_);
    return speaker_.sound(speaker_.frames(prompt, wish, stopped), wish);
  }
  void speak_on(const SpokenText& text, const VoiceWish& wish, const std::function<bool()>& stopped,
                const std::function<void(std::vector<float>)>& heard) override {
    const TalkerPrompt prompt = prompt_of(text, wish);
    const std::lock_guard one_at_a_time(mutex_);
    speaker_.speak_on(prompt, wish, stopped, heard);
  }

 protected:
  const SpeakingParts& parts() const { return speech_; }
  virtual TalkerPrompt prompt_of(const SpokenText& text, const VoiceWish& wish) const = 0;
  const Speaker& speaker() const { return speaker_; }

 private:
  const SpeakingParts speech_;
  const Speaker speaker_;
  std::mutex mutex_;
};

class AnswersVoice final : public OpenedVoice {
 public:
  AnswersVoice(SpeakingParts speech, Engine& engine, at::TensorOptions options)
      : OpenedVoice(std::move(speech), options), engine_(engine) {}

 private:
  TalkerPrompt prompt_of(const SpokenText& text, const VoiceWish& wish) const override {
    TalkerPrompt prompt;
    engine_.use_model([&](const Model& model) { prompt = speaker().prompt(model, text, wish.voice); });
    return prompt;
  }
  Engine& engine_;
};

class LoneVoice final : public OpenedVoice {
 public:
  LoneVoice(SpeakingParts speech, at::TensorOptions options, const std::filesystem::path& dir)
      : OpenedVoice(std::move(speech), options), tokenizer_(Tokenizer::load(dir)), usual_(read_usual(dir)) {}
  VoiceWish usual() const override { return usual_; }
  bool alone() const override { return true; }
  bool clones() const override { return parts().reader != nullptr; }
  std::shared_ptr<const LearntVoice> learn(const std::vector<float>& samples, const std::string& words) const override {
    if (!clones()) return TextVoice::learn(samples, words);
    const at::NoGradGuard no_grad;
    const at::Tensor sample_N = at::tensor(samples);
    auto voice = std::make_shared<LearntVoice>(LearntVoice{parts().reader->speaker(sample_N).unsqueeze(0)});
    if (words.empty()) return voice;
    // As a turn's own text, without its three marks before it and its two behind it.
    const auto turn = tokenizer_->encode("<|im_start|>assistant\n" + words + "<|im_end|>\n");
    require(turn.size() > 5, Fault::Data, "the words of the recording make no tokens");
    voice->text.assign(turn.begin() + 3, turn.end() - 2);
    voice->code_FG = parts().reader->codes(sample_N);
    return voice;
  }
  SpokenText text_of(const std::string& text, const std::string& instructions) const override {
    const std::string turn = "<|im_start|>assistant\n", end = "<|im_end|>\n";
    SpokenText out{.prompt = {}, .answer = tokenizer_->encode(turn + text + end + turn)};
    if (!instructions.empty()) out.prompt = tokenizer_->encode("<|im_start|>user\n" + instructions + end);
    return out;
  }

 private:
  TalkerPrompt prompt_of(const SpokenText& text, const VoiceWish& wish) const override {
    require(!clones() || wish.like, Fault::Usage,
            "this model speaks in the voice of a recording, and there is none: --speaker_audio FILE (a request: "
            "'ref_audio')");
    return speaker().prompt(text, wish);
  }
  // What generation_config.json says of both kinds of codes.
  VoiceWish read_usual(const std::filesystem::path& dir) const {
    VoiceWish wish = OpenedVoice::usual();
    const auto file = dir / "generation_config.json";
    if (!std::filesystem::exists(file)) return wish;
    const Json all = parse_json(read_file(file, 1 << 20), file.string());
    const Config c(all);
    const auto take = [&](Sampling& into, const std::string& kind, const char* draws) {
      const auto key = [&](const char* name) { return kind + name; };
      into.temperature = c.number(key("temperature").c_str(), into.temperature);
      into.top_p = c.number(key("top_p").c_str(), into.top_p);
      into.top_k = c.integer(key("top_k").c_str(), into.top_k);
      if (!c.flag(draws, true)) into.temperature = 0;
    };
    take(wish.first, "", "do_sample"), take(wish.rest, "subtalker_", "subtalker_dosample");
    wish.first.repetition_penalty = c.number("repetition_penalty", wish.first.repetition_penalty);
    wish.most_frames = std::clamp<int64_t>(c.integer("max_new_tokens", 2048), 1, 1 << 16);
    return wish;
  }
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const VoiceWish usual_;
};

void tell_voices(const TextVoice& voice) {
  const auto names = voice.voices();
  log_info(voice.alone() ? "texts" : "answers", " can be spoken",
           names.empty() ? "" : ", by the voices " + join(names));
}
}  // namespace

std::unique_ptr<TextVoice> open_voice(const ModelOptions& model, const RankOptions& mesh, Inference& in) {
  require(in.engine && !in.loaded.spread && mesh.ranks_of_copy() == 1, Fault::Usage,
          "answers are spoken where the model lies on one device: leave out --device_map and parallel sizes, or "
          "--enable_audio_output");
  auto voice = std::make_unique<AnswersVoice>(load_speech(model.model, in.loaded.dtype, in.loaded.device.device),
                                              *in.engine, in.loaded.options());
  tell_voices(*voice);
  return voice;
}

std::shared_ptr<const LearntVoice> recorded_voice(const TextVoice& voice, const SpeechOptions& options) {
  if (options.recording.empty()) return nullptr;
  try {
    return voice.learn(decode_sound(read_file(options.recording), kSpeechRate), options.words);
  } catch (const Error& error) {
    fail(error.at, options.recording, ": ", error.what());
  }
}

std::unique_ptr<TextVoice> open_lone_voice(const ModelOptions& model) {
  const DeviceChoice device = open_device(model.device);
  std::string note;
  const at::ScalarType dtype =
      choose_dtype(model.torch_dtype.value_or(""), read_model_config(model.model), device.device, &note);
  if (!note.empty()) log_info(note);
  const Stopwatch watch;
  auto voice = std::make_unique<LoneVoice>(load_speech(model.model, dtype, device.device),
                                           at::TensorOptions().dtype(dtype).device(device.device), model.model);
  log_info(model.model, ": ", float_type_name(dtype), " on ", device.device.str(), ", loaded in ", watch.seconds(),
           "s");
  tell_voices(*voice);
  return voice;
}

}  // namespace apus
