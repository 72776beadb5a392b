// SPDX-License-Identifier: Apache-2.0
// How sound is made of codes as Qwen2.5-Omni does, as data: a transformer drives noise along a flow towards a picture
// of sound (mel), told by the codes and by a sample of the voice; a net of convolutions makes the samples of it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "models/spec/manner_spec.h"
#include "nn/rope_spec.h"

namespace apus {

inline constexpr int64_t kTimeWidth = 256;  // of a point in time, before the flow's own width

struct FlowSpec {
  // Of the module, in the checkpoint.
  std::string name;
  int64_t layers = 22, hidden = 1024, heads = 16, head_dim = 64;
  // Rows see those of their own block; in some layers of the one before or behind it too.
  int64_t block = 24;
  std::set<int64_t> ahead, behind;
  // Codes that it knows, and the rows of mel that each stands for, of so many bands.
  int64_t words = 8194, repeats = 2, bands = 80;
  // A voice is told by numbers of its own, and by what MannerSpec finds in its sample.
  int64_t voice = 192;
  RopeSpec rope;
  int64_t most_rows = 32768;
  // Points in time between noise and mel, both among them; how far what the codes say is led away from what would be
  // there without them.
  int64_t points = 10;
  double guidance = 0.5;
  std::vector<TowerPart> parts;
};

// Samples of sound from mel: stretches of time, each followed by the mean of a few nets of convolutions.
struct WaveSpec {
  std::string name;
  std::vector<int64_t> rates;
  std::vector<std::vector<int64_t>> dilations;  // of each of the nets behind a stretch
  std::vector<TowerPart> parts;
};

struct FlowVocoderSpec {
  FlowSpec flow;
  MannerSpec manner;
  WaveSpec wave;
};

}  // namespace apus
