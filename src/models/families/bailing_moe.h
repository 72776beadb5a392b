// SPDX-License-Identifier: Apache-2.0
// What Ling 2.0 and the family that is built like it have in common.
#pragma once

#include "gguf/form.h"

namespace apus {

// How they stand in GGUF files.
GgufForm bailing_gguf();

}  // namespace apus
