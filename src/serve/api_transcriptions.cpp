// SPDX-License-Identifier: Apache-2.0
// OpenAI's transcriptions: a sound in a form becomes a chat with a model that hears, and its answer the text.
#include <nlohmann/json.hpp>
#include <utility>

#include "base/base64.h"
#include "media/processor.h"
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
Json chat_of(const TranscriptionCall& w, const Transcription& how) {
  Json messages = Json::array(), content = Json::array();
  if (how.hints_are_system && !w.hints.empty()) messages.push_back({{"role", "system"}, {"content", w.hints}});
  content.push_back({{"type", "audio_url"}, {"audio_url", {{"url", w.sound}}}});
  std::string ask = how.ask;
  if (!how.hints_are_system && !w.hints.empty()) ask += (ask.empty() ? "" : "\n") + w.hints;
  if (!ask.empty()) content.push_back({{"type", "text"}, {"text", ask}});
  messages.push_back({{"role", "user"}, {"content", std::move(content)}});
  Json chat = {{"messages", std::move(messages)}, {"temperature", w.temperature}};
  if (!w.model.empty()) chat["model"] = w.model;
  return chat;
}

std::string said_in(const Json& answer, const std::string& mark) {
  const Json& content = answer.at("choices").at(0).at("message").at("content");
  std::string text = content.is_string() ? content.get<std::string>() : "";
  if (const size_t at = mark.empty() ? std::string::npos : text.find(mark); at != std::string::npos)
    text.erase(0, at + mark.size());
  text.erase(0, std::min(text.find_first_not_of(" \n"), text.size()));
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

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
  const Json chat = chat_of(wanted, how);
  ChatCall call = read_chat_request(chat, {.max_logprobs = service_.spec().max_logprobs});
  call.begin = how.begin;
  WholeSink sink = to_reply(e);
  const auto said = [done = std::move(sink.done), reply = e.reply, wanted, mark = how.mark](const Json& answer) {
    const std::string text = said_in(answer, mark);
    if (wanted.plain) return reply->send({.body = text + "\n", .content_type = "text/plain; charset=utf-8"});
    const Json usage = answer.value("usage", Json::object());
    const int64_t in = usage.value("prompt_tokens", int64_t{0}), out = usage.value("completion_tokens", int64_t{0});
    done({{"text", text},
          {"usage", {{"type", "tokens"}, {"input_tokens", in}, {"output_tokens", out}, {"total_tokens", in + out}}}});
  };
  answer(e, service_.prepare(call), false, {"chatcmpl-", 32, streamed_chat, whole_chat},
         {said, std::move(sink.failed)});
}

}  // namespace apus
