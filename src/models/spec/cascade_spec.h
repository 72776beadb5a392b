// SPDX-License-Identifier: Apache-2.0
// What Phi-4-multimodal hears with: convolutions that halve time and bands again and again, layers of a conformer whose
// scores know how far two rows are apart, and two projections. Beside a HearingSpec; no tensor library.
#pragma once

#include "models/spec/config.h"
#include "models/spec/seeing_spec.h"

namespace apus {

struct CascadeSpec {
  // Of what holds the tower and the projections; the tower's own is below it.
  std::string home = "model.embed_tokens_extend.audio_embed";
  int64_t bands = 80, width = 0, layers = 0, heads = 0, ffn = 0;
  // Of the convolutions, and how many of them halve.
  int64_t channels = 0, halvings = 3;
  // Of the convolution over time in a layer.
  int64_t taps = 3;
  // Rows that are further apart count as this far.
  int64_t reach = 1000;
  int64_t out = 0;  // the decoder's width
  // Layers look at so many rows. A longer sound is cut, and rows of zeros, which are looked at, fill up the rest.
  static constexpr int64_t kRowsAtOnce = 500;

  std::string tower() const { return home + ".encoder"; }
  // Of a sound alone, and of one in a text with pictures: its first layer and its second one.
  std::string projection(bool beside_pictures, bool second) const {
    return home + (second ? ".down" : ".up") + "_proj_for_" + (beside_pictures ? "vision_speech" : "speech");
  }
  int64_t head_size() const { return width / heads; }
  int64_t halved(int64_t n) const;  // as often as the convolutions do
};

// audio_config as transformers has it; `out`: the decoder's width.
CascadeSpec read_cascade(const Config& audio, int64_t out);
std::vector<TowerPart> parts_of(const CascadeSpec& spec);

}  // namespace apus
