// SPDX-License-Identifier: Apache-2.0
// Answers that are heard: OpenAI's speech, and chats whose answers are spoken too.
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "base/log.h"
#include "media/sound.h"
#include "media/sound_out.h"
#include "media/source.h"
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

// Throws before the first piece alone: behind it the client has its answer's head.
void speak_on(TextVoice& voice, const SpokenText& text, const VoiceWish& wish, const std::function<bool()>& stopped,
              const std::string& form, Responder& reply) {
  const auto sound = open_sound_out(form, kSpeechRate);
  bool begun = false;
  const auto give = [&](std::string bytes) {
    if (begun) return reply.write(std::move(bytes));
    begun = true;
    reply.begin({.body = std::move(bytes), .content_type = sound_media_type(form)});
  };
  try {
    voice.speak_on(text, wish, stopped, [&](const std::vector<float>& samples) { give(sound->add(samples)); });
    give(sound->end());
  } catch (const std::exception& error) {
    if (!begun) throw;
    log_warning("a spoken answer ended early: ", error.what());
  }
  reply.end();
}

// A form that cannot be made here is said before anything is spoken.
void check_form(const char* param, const std::string& form) {
  try {
    open_sound_out(form, kSpeechRate);
  } catch (const Error& error) {
    refuse(param, error.what());
  }
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

std::shared_ptr<const LearntVoice> Api::learnt(const TextVoice& voice, const SpeechCall& call) const {
  try {
    const bool bare = call.recording.starts_with("UklGR");  // as a WAV file's first letters are in base64
    const std::string from = bare ? "data:audio/wav;base64," + call.recording : call.recording;
    const Json allowed = allowed_media({{"audios", {from}}}, service_.spec().media_rules);
    const std::string bytes = media_bytes(allowed["audios"][0].get<std::string>(), service_.spec().media_limits);
    return voice.learn(decode_sound(bytes, kSpeechRate), call.words);
  } catch (const ApiError& error) {
    refuse("ref_audio", error.what());
  } catch (const Error& error) {
    refuse("ref_audio", error.what());
  }
}

void Api::speech(const Exchange& e) {
  const SpeechCall call = read_speech_request(e.body());
  TextVoice& voice = this->voice("model", "voice", call.voice, call.language);
  service_.check_model(call.model);
  if (!call.recording.empty() && !voice.clones())
    refuse("ref_audio", "this model has voices of its own, and learns no others");
  SpokenText text = voice.alone() ? voice.text_of(call.text, call.instructions) : as_answer(call);
  VoiceWish wish = wish_of(call.voice, call.language, service_.spec(), call.seed.value_or(service_.spec().seed));
  wish.like = service_.spec().like;
  if (voice.clones() && !wish.like && call.recording.empty())
    refuse("ref_audio",
           "this model speaks in the voice of a recording: 'ref_audio' brings one, as a URL or as base64 of "
           "a WAV file, and 'ref_text' its words");
  const std::string form = call.form.empty() ? usual_sound_form() : call.form;
  check_form("response_format", form);
  voices_->post(
      [self = shared_from_this(), e, &voice, text = std::move(text), wish, call, form, gone = gone_of(*e.reply)] {
        try {
          VoiceWish as = wish;
          if (!call.recording.empty()) as.like = self->learnt(voice, call);
          const auto stopped = [&] { return gone() || self->ending_; };
          if (call.stream) return speak_on(voice, text, as, stopped, form, *e.reply);
          e.reply->send({.body = sound_bytes(form, voice.speak(text, as, stopped), kSpeechRate),
                         .content_type = sound_media_type(form)});
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
  check_form("audio.format", call.spoken->form);
  const VoiceWish wish = wish_of(call.spoken->voice, "", service_.spec(), request.sampling.seed);
  prepared.form.token_ids = true;
  const auto speak = [&voice, wish, form = call.spoken->form, ids = call.token_ids](
                         Json answer, SpokenText text, const std::function<bool()>& stopped) {
    Json& choice = answer.at("choices").at(0);
    text.answer = choice.at("token_ids").get<std::vector<int32_t>>();
    if (!ids) choice.erase("token_ids"), answer.erase("prompt_token_ids");
    const auto samples = voice.speak(text, wish, stopped);
    Json& message = choice.at("message");
    message["audio"] = {{"id", random_id("audio_", 24)},
                        {"expires_at", static_cast<int64_t>(std::time(nullptr)) + kKept},
                        {"data", base64(sound_bytes(form, samples, kSpeechRate))},
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
