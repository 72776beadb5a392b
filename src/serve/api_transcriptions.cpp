// SPDX-License-Identifier: Apache-2.0
// OpenAI's transcriptions: a sound in a form becomes a chat with a model that hears, and its answer the text; a long
// one becomes a chat for each piece, where the model hears so much at a time.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/base64.h"
#include "media/processor.h"
#include "media/sound.h"
#include "media/video.h"
#include "media/wav.h"
#include "serve/api.h"
#include "serve/api_error.h"
#include "serve/form_data.h"
#include "serve/openai_request.h"
#include "serve/transcription_request.h"

namespace apus {

namespace {

// The form's values as an object, as a request of JSON would be; the sound under `file` as a data URI.
Json values_of(const HttpCall& call) {
  const auto parts = read_form_data(call.header("content-type"), call.body);
  Json out = Json::object();
  for (const FormPart& part : parts) {
    const bool sound = part.name == "file";
    if (out.contains(part.name)) refuse(part.name, "'", part.name.substr(0, 64), "' is given twice");
    out[part.name] = sound ? "data:audio/any;base64," + base64(part.value) : std::string(part.value);
  }
  return out;
}

// The chat that is asked instead.
Json chat_of(const TranscriptionCall& w, const std::string& sound, const Transcription& how) {
  Json messages = Json::array(), content = Json::array();
  if (how.hints_are_system && !w.hints.empty()) messages.push_back({{"role", "system"}, {"content", w.hints}});
  content.push_back({{"type", "audio_url"}, {"audio_url", {{"url", sound}}}});
  std::string ask = how.ask;
  if (!how.hints_are_system && !w.hints.empty()) ask += (ask.empty() ? "" : "\n") + w.hints;
  if (!ask.empty()) content.push_back({{"type", "text"}, {"text", ask}});
  messages.push_back({{"role", "user"}, {"content", std::move(content)}});
  // The last: said to templates that would ask for marks behind the sound, which begin the answer here.
  Json chat = {{"messages", std::move(messages)},
               {"temperature", w.temperature},
               {"chat_template_kwargs", {{"marks_follow", true}}}};
  if (!w.model.empty()) chat["model"] = w.model;
  return chat;
}

// The chat whose answer is the token of a language.
Json chat_about_language(const TranscriptionCall& w, const std::string& sound, const Transcription& how) {
  Json chat = chat_of({.sound = "", .model = w.model, .language = "", .hints = ""}, sound, Transcription{.ask = ""});
  Json bias = Json::object();
  for (const auto& [id, code] : how.languages) bias[std::to_string(id)] = 100;
  chat.update({{"logit_bias", std::move(bias)}, {"max_tokens", 1}, {"logprobs", true}});
  return chat;
}

std::string said_in(const Json& answer, const std::string& mark) {
  const Json& content = answer.at("choices").at(0).at("message").at("content");
  std::string text = content.is_string() ? content.get<std::string>() : "";
  if (const size_t at = mark.empty() ? std::string::npos : text.find(mark); at != std::string::npos)
    text.erase(0, at + mark.size());
  return text;
}

std::string language_in(const Json& answer, const Transcription& how) {
  const std::string mark = answer.at("choices").at(0).at("logprobs").at("content").at(0).at("token");
  for (const auto& [id, code] : how.languages)
    if (mark == "<|" + code + "|>") return code;
  refuse("language", "the model does not say which language it hears; say it");
}

// The sound, or what the model hears of it at a time.
std::vector<std::string> sounds_of(const TranscriptionCall& wanted, const Transcription& how) {
  if (how.seconds == 0) return {wanted.sound};
  const auto pieces = cut_where_quiet(read_sound(wanted.sound, {}), how.seconds * kSoundRate);
  if (pieces.size() == 1) return {wanted.sound};
  std::vector<std::string> out;
  for (const std::vector<float>& piece : pieces)
    out.push_back("data:audio/wav;base64," + base64(wav_bytes(piece, kSoundRate)));
  return out;
}

// What was heard of the pieces of a sound, which end in any order.
struct Heard {
  std::vector<std::string> texts;
  size_t open = 0;
  int64_t in = 0, out = 0;
  bool ended = false;  // the client has its answer

  std::string text() const {
    std::string all;
    for (const std::string& each : texts) all += each;
    all.erase(0, std::min(all.find_first_not_of(" \n"), all.size()));
    all.erase(all.find_last_not_of(" \n") + 1);
    return all;
  }
  Json usage() const {
    return {{"type", "tokens"}, {"input_tokens", in}, {"output_tokens", out}, {"total_tokens", in + out}};
  }
};

}  // namespace

void Api::transcriptions(const Exchange& e) {
  check_talks();
  const TranscriptionCall wanted = read_transcription_form(values_of(*e.call));
  const auto& media = service_.spec().media;
  if (!media) refuse("model", "this model reads text only, and hears nothing");
  Transcription how;
  try {
    how = media->processor().transcription(wanted.language);
  } catch (const Error& error) {
    refuse("language", error.what());
  }
  auto sounds = std::make_shared<std::vector<std::string>>();
  try {
    *sounds = sounds_of(wanted, how);
  } catch (const Error& error) {
    refuse("file", error.what());
  }
  if (how.languages.empty()) return hear(e, wanted, *sounds, how);
  const WholeSink reply = to_reply(e);
  const auto known = [self = shared_from_this(), e, wanted, sounds, how, failed = reply.failed](const Json& answer) {
    try {
      self->hear(e, wanted, *sounds, self->service_.spec().media->processor().transcription(language_in(answer, how)));
    } catch (const ApiError& error) {
      failed(error);
    }
  };
  const Json chat = chat_about_language(wanted, sounds->front(), how);
  answer(e, service_.prepare(read_chat_request(chat, {.max_logprobs = service_.spec().max_logprobs})), false,
         {"chatcmpl-", 32, streamed_chat, whole_chat}, {known, reply.failed});
}

// The text of all sounds, which are pieces of one.
void Api::hear(const Exchange& e, const TranscriptionCall& wanted, const std::vector<std::string>& sounds,
               const Transcription& how) {
  const auto heard = std::make_shared<Heard>();
  heard->texts.resize(sounds.size()), heard->open = sounds.size();
  const WholeSink reply = to_reply(e);
  const auto failed = [heard, failed = reply.failed](const ApiError& error) {
    if (!std::exchange(heard->ended, true)) failed(error);
  };
  const auto all_said = [heard, reply, to = e.reply, plain = wanted.plain] {
    if (std::exchange(heard->ended, true)) return;
    const std::string text = heard->text();
    if (plain) return to->send({.body = text + "\n", .content_type = "text/plain; charset=utf-8"});
    reply.done({{"text", text}, {"usage", heard->usage()}});
  };
  for (size_t i = 0; i < sounds.size(); ++i) {
    ChatCall call = read_chat_request(chat_of(wanted, sounds[i], how), {.max_logprobs = service_.spec().max_logprobs});
    call.begin = how.begin;
    const auto said = [heard, all_said, i, mark = how.mark](const Json& answer) {
      heard->texts[i] = said_in(answer, mark);
      const Json usage = answer.value("usage", Json::object());
      heard->in += usage.value("prompt_tokens", int64_t{0}), heard->out += usage.value("completion_tokens", int64_t{0});
      if (--heard->open == 0) all_said();
    };
    try {
      answer(e, service_.prepare(call), false, {"chatcmpl-", 32, streamed_chat, whole_chat}, {said, failed});
    } catch (const ApiError&) {
      if (std::exchange(heard->ended, true)) return;
      throw;
    }
  }
}

}  // namespace apus
