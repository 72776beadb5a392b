// SPDX-License-Identifier: Apache-2.0
// Answers that are heard, of models that speak.
#pragma once

#include <string>

#include "cli/option_groups.h"

namespace apus {

struct SpeechOptions {
  bool enabled = false;
  std::string speaker;  // empty: the first in the alphabet
  void speaker_field(OptionTable& v);
  // When the model is a folder here: Fault::Usage where it does not speak, or has no such voice.
  void check(const ModelOptions& model) const;
};

}  // namespace apus
