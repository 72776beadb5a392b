// SPDX-License-Identifier: Apache-2.0
// OpenAI's request for a text that is to be spoken. Pure: JSON in, a call or an ApiError out.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"

namespace apus {

struct SpeechCall {
  std::string text, model, voice, language, instructions;  // empty: not said
  bool bare = false;                                       // the samples alone, without a file's head
  std::optional<uint64_t> seed;
};

// `schema`: as in serve/openai_request.h.
SpeechCall read_speech_request(const Json& body, Json* schema = nullptr);

}  // namespace apus
