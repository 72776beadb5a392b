// SPDX-License-Identifier: Apache-2.0
#include "serve/transcription_request.h"

#include <cstdlib>

#include "serve/api_error.h"
#include "serve/fields.h"

namespace apus {

namespace {
double number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value >= 0 && value <= 2))
    refuse("temperature", "'temperature' must be a number from 0 to 2");
  return value;
}
}  // namespace

TranscriptionCall read_transcription_form(const Json& form, Json* schema) {
  const Fields f(form, "", schema);
  TranscriptionCall call;
  call.sound = f.needed_text("file");
  call.model = f.text("model").value_or(""), call.language = f.text("language").value_or("");
  call.hints = f.text("prompt").value_or("");
  call.plain = f.choice("response_format", {"json", "text"}).value_or("json") == "text";
  if (const auto said = f.text("temperature")) call.temperature = number_of(*said);
  f.cannot("stream", "false", "a transcription comes whole");
  f.cannot("timestamp_granularities[]", nullptr, "the model says no times");
  f.cannot("include[]", nullptr, "there is the text alone");
  f.cannot("chunking_strategy", nullptr, "a sound is heard as one");
  f.refuse_unread();
  return call;
}

}  // namespace apus
