// SPDX-License-Identifier: Apache-2.0
// What Granite's families with a shared expert have in common.
#pragma once

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"

namespace apus {

// `shared`: the width of the shared expert where the file leaves it out.
MixtureSpec granite_mixture(const Config& c, int64_t width, int64_t shared);
// Their mixture in GGUF files.
std::vector<GgufPair> granite_gguf_names();
std::vector<GgufKey> granite_gguf_keys();

}  // namespace apus
