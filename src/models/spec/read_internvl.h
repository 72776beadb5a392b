// SPDX-License-Identifier: Apache-2.0
// What both layouts of InternVL's files say in the same words.
#pragma once

#include <string>
#include <vector>

#include "gguf/form.h"
#include "models/spec/config.h"
#include "models/spec/decoder_spec.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// What a class in transformers takes where the file leaves a key out. OpenGVLab's are those of the tower of 6 billion.
struct InternTowerDefaults {
  int64_t width, layers, heads, ffn, image;
  const char* norm;
};

VisionSpec read_intern_tower(const Config& vision, const InternTowerDefaults& defaults);

// What config.json of well-known models says in transformers' words: the tower of 300 million, and how it is looked at.
Json intern_says();
// How the tower stands in a GGUF file, but for names inside it; `joins` and those of what joins it to the text.
GgufTower intern_gguf_tower(const std::string& joins, const char* norm, const char* in, const char* out);

// As OpenGVLab calls its parts. `normed`: queries and keys have norms.
void use_first_names(VisionSpec& tower, bool normed);

// A whole model in transformers' layout.
DecoderSpec read_native_internvl(const Config& config);

// `text` with this tower. `token` stands for an image; `language` are beginnings of names in the text part.
DecoderSpec with_intern_tower(const Config& c, DecoderSpec text, VisionSpec tower, int64_t token,
                              std::vector<std::string> language, std::vector<DiskForm> forms);

}  // namespace apus
