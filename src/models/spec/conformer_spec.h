// SPDX-License-Identifier: Apache-2.0
// What Gemma 3n hears with (the Universal Speech Model's encoder): two convolutions over time and bands, layers of a
// conformer that look back over a window, of some rows one. Beside a HearingSpec; no tensor library.
#pragma once

#include <array>

#include "models/spec/embedder_form.h"

namespace apus {

struct ConformerSpec {
  std::string name = "model.audio_tower";
  int64_t bands = 128, width = 0, layers = 0, heads = 0;
  // So many rows before a row and behind it are looked at.
  int64_t before = 0, behind = 0;
  // Scores are bent to cap * tanh(score / cap); what branches read and give is kept within the bound.
  double cap = 50, bound = 1e10;
  // Of what the feed-forwards give, so much is added.
  double added = 0.5;
  // Of the convolution over time in a layer. Behind the layers one of `every` rows is kept.
  int64_t taps = 5, every = 4;
  // Of the two convolutions: channels; sides and steps in time and bands.
  std::array<int64_t, 2> channels{};
  std::array<std::array<int64_t, 2>, 2> sides{}, steps{};
  double group_eps = 1e-3, eps = 1e-6;
  // A sound has so many rows: the last of them are a token's that stands for nothing heard, and whose number this is.
  int64_t tokens = 0, nothing = 0;
  EmbedderForm embedder;

  int64_t head_size() const { return width / heads; }
  int64_t window() const { return before + 1 + behind; }
  // Bands behind so many of the convolutions.
  int64_t bands_behind(size_t convolutions) const;
  // Rows of so many frames: behind the convolutions, and behind the layers.
  int64_t rows(int64_t frames) const;
  int64_t kept(int64_t frames) const { return (rows(frames) + every - 1) / every; }
};

// audio_config; `out`: the decoder's width, `tokens`: rows of a sound, `last_word`: of the whole vocabulary.
ConformerSpec read_conformer(const Config& audio, int64_t out, int64_t tokens, int64_t last_word);
std::vector<TowerPart> parts_of(const ConformerSpec& spec);

}  // namespace apus
