// SPDX-License-Identifier: Apache-2.0
// OpenAI's request for what is said in a sound. Pure: the form's values in, a call or an ApiError out.
#pragma once

#include <string>

#include "base/json.h"

namespace apus {

struct TranscriptionCall {
  std::string sound;                   // a data URI
  std::string model, language, hints;  // empty: not said
  bool plain = false;                  // the answer is the text itself
  double temperature = 0;
};

// `form`: an object of texts. `schema`: as in serve/openai_request.h.
TranscriptionCall read_transcription_form(const Json& form, Json* schema = nullptr);

}  // namespace apus
