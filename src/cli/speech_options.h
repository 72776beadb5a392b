// SPDX-License-Identifier: Apache-2.0
// Answers that are heard, of models that speak.
#pragma once

#include <string>

#include "cli/option_groups.h"

namespace apus {

struct SpeechOptions {
  bool enabled = false;
  bool alone = false;             // the model gives no words, only speech; filled by settle()
  std::string speaker, language;  // empty: the first in the alphabet; as the voice understands the text
  std::string recording, words;   // empty: none; not known
  void voice_fields(OptionTable& v);
  // When the model is a folder here. Fault::Usage where it does not speak, though it is to, or has no such voice, or is
  // given a recording that it cannot learn from. `now`: there will be no requests that bring one.
  void settle(const ModelOptions& model, bool now);
};

}  // namespace apus
