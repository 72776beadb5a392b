// SPDX-License-Identifier: Apache-2.0
// OpenAI's request for a text that is to be spoken. Pure: JSON in, a call or an ApiError out.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace apus {

struct SpeechCall {
  std::string text, model, voice, language, instructions;  // empty: not said
  std::string recording, words;  // in whose voice (a URL, data URI or base64 of a WAV file), and what is said there
  std::string form;              // of sound_forms(); empty: not said
  bool stream = false;           // piece by piece
  std::optional<uint64_t> seed;
};

// `schema`: as in serve/openai_request.h.
SpeechCall read_speech_request(const Json& body, Json* schema = nullptr);

}  // namespace apus
