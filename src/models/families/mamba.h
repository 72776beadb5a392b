// SPDX-License-Identifier: Apache-2.0
// What Mamba and Falcon-Mamba say in the same words.
#pragma once

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

SelectiveForm read_selective(const Config& c, int64_t hidden);
// How they stand in GGUF files; `normed`: steps, keys and queries are, which such a file says.
GgufForm mamba_gguf(bool normed);

}  // namespace apus
