// SPDX-License-Identifier: Apache-2.0
// Answers that are heard: OpenAI's speech, and chats whose answers are spoken too.
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "media/wav.h"
#include "models/spec/speech_spec.h"
#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/openai_request.h"
#include "serve/speech_request.h"

namespace apus {

namespace {
constexpr int64_t kKept = 3600;  // seconds that OpenAI's clients may expect a sound to be known for

// Whether the client has left.
std::function<bool()> gone_of(Responder& reply) {
  auto gone = std::make_shared<std::atomic<bool>>(false);
  reply.on_gone([gone] { *gone = true; });
  return [gone] { return gone->load(); };
}

std::string sound_bytes(const std::vector<float>& samples, bool bare) {
  return bare ? pcm_bytes(samples) : wav_bytes(samples, kSpeechRate);
}

VoiceWish wish_of(const std::string& voice, const std::string& language, const ServiceSpec& service, uint64_t seed) {
  VoiceWish wish = service.voice->usual();
  wish.voice = voice.empty() ? service.speaker : voice;
  wish.language = language.empty() ? service.language : language;
  wish.seed(seed);
  return wish;
}
}  // namespace

TextVoice& Api::voice(const char* wish, const char* param, const std::string& name, const std::string& language) const {
  TextVoice* const voice = service_.spec().voice;
  if (!voice)
    refuse(wish,
           "this model answers in text; one that speaks (Qwen2.5-Omni, Qwen3-Omni) does so when it is served with "
           "--enable_audio_output true");
  try {
    voice->check(name, language);
  } catch (const Error& error) {
    refuse(param, error.what());
  }
  return *voice;
}

// The text as if a model had answered so.
SpokenText Api::as_answer(const SpeechCall& call) const {
  Json chat = {{"messages", {{{"role", "user"}, {"content", call.instructions}}}}};
  if (!call.model.empty()) chat["model"] = call.model;
  return {.prompt = service_.chat_ids(read_chat_request(chat, {})),
          .answer = service_.encode(call.text, /*add_special=*/false, "input")};
}

void Api::speech(const Exchange& e) {
  const SpeechCall call = read_speech_request(e.body());
  TextVoice& voice = this->voice("model", "voice", call.voice, call.language);
  service_.check_model(call.model);
  SpokenText text = voice.alone() ? voice.text_of(call.text, call.instructions) : as_answer(call);
  const VoiceWish wish = wish_of(call.voice, call.language, service_.spec(), call.seed.value_or(service_.spec().seed));
  voices_->post(
      [self = shared_from_this(), e, &voice, text = std::move(text), wish, bare = call.bare, gone = gone_of(*e.reply)] {
        try {
          const auto samples = voice.speak(text, wish, [&] { return gone() || self->ending_; });
          e.reply->send({.body = sound_bytes(samples, bare), .content_type = bare ? "audio/pcm" : "audio/wav"});
        } catch (...) {
          e.reply->send(error_answer(*e.call, current_error(*e.call)));
        }
      });
}

// `sink` gets the answer with the sound of it.
WholeSink Api::speaking(const Exchange& e, const ChatCall& call, Service::Prepared& prepared, WholeSink sink) {
  TextVoice& voice = this->voice("modalities", "audio.voice", call.spoken->voice, "");
  const EngineRequest& request = prepared.stream.requests.at(0);
  const SpokenText asked{.prompt = request.prompt, .answer = {}, .media = request.media};
  const VoiceWish wish = wish_of(call.spoken->voice, "", service_.spec(), request.sampling.seed);
  prepared.form.token_ids = true;
  const auto speak = [&voice, wish, bare = call.spoken->bare, ids = call.token_ids](
                         Json answer, SpokenText text, const std::function<bool()>& stopped) {
    Json& choice = answer.at("choices").at(0);
    text.answer = choice.at("token_ids").get<std::vector<int32_t>>();
    if (!ids) choice.erase("token_ids"), answer.erase("prompt_token_ids");
    const auto samples = voice.speak(text, wish, stopped);
    Json& message = choice.at("message");
    message["audio"] = {{"id", random_id("audio_", 24)},
                        {"expires_at", static_cast<int64_t>(std::time(nullptr)) + kKept},
                        {"data", base64(sound_bytes(samples, bare))},
                        {"transcript", message["content"]}};
    message["content"] = nullptr;
    return answer;
  };
  return {[self = shared_from_this(), speak, asked, sink, gone = gone_of(*e.reply), call = e.call](Json answer) {
            self->voices_->post([self, speak, asked, sink, gone, call, answer = std::move(answer)] {
              try {
                sink.done(speak(answer, asked, [&] { return gone() || self->ending_; }));
              } catch (...) {
                sink.failed(current_error(*call));
              }
            });
          },
          sink.failed};
}

}  // namespace apus
