// SPDX-License-Identifier: Apache-2.0
// How the voice of a recording is learnt, as data: who speaks (a row of the talker's width), and how, as codes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/spec/manner_spec.h"
#include "nn/rope_spec.h"

namespace apus {

// Frames of codes from sound, as Mimi makes them: convolutions that narrow time, a few layers of attention, another
// narrowing, and for each book the word that is nearest to what the books before it left over.
struct SoundCoderSpec {
  // Of the module, in the checkpoint.
  std::string name;
  std::vector<int64_t> rates;  // by which time is narrowed, in their order
  int64_t layers = 8, heads = 8, head_dim = 64, window = 250;
  RopeSpec rope = {};
  // Books of a frame that are used.
  int64_t books = 16;
  bool projects = true;  // what the books are asked with is narrower than the layers
  int64_t samples_per_frame() const;
  std::vector<TowerPart> parts;
};

struct CloneSpec {
  int64_t bands = 128;  // of the mel that MannerSpec reads
  MannerSpec manner;
  SoundCoderSpec coder;
};

class Config;
// Of Qwen3-TTS Base, by its whole config.json with that of its vocoder (with_speech_files). `width`: of the talker;
// `codes`: of each frame.
CloneSpec read_clone(const Config& whole, int64_t width, int64_t codes);

}  // namespace apus
