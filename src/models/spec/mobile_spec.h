// SPDX-License-Identifier: Apache-2.0
// What Gemma 3n sees with (MobileNet-V5): stages of blocks of convolutions, and of attention with one key for all
// heads, each stage over half as many lines and columns; what the last two give becomes one picture of few cells.
// Beside a SeeingSpec; no tensor library.
#pragma once

#include "media/media_item.h"
#include "models/spec/embedder_form.h"

namespace apus {

struct MobileBlock {
  // Edge: a convolution to more channels, and back. Inverted: convolutions of each channel for itself around the one to
  // more channels. Attention: of all cells to all, or to one in `key_step` of both sides.
  enum class Kind { Edge, Inverted, Attention };
  Kind kind = Kind::Inverted;
  int64_t in = 0, out = 0, step = 1;
  // Of Edge and Inverted: the channels in between.
  int64_t wide = 0;
  // Sides of convolutions: Edge has the second, Inverted any of the three (before it has more channels, when it has
  // them, behind them); Attention the second, of its keys. 0: there is none.
  int64_t before = 0, among = 0, behind = 0;
  int64_t heads = 0, key = 0, value = 0, key_step = 1;
  // What it makes is added to what it reads.
  bool added() const { return in == out && step == 1; }
};

struct MobileSpec {
  std::string name = "model.vision_tower.timm_model";
  int64_t stem = 64;
  std::vector<std::vector<MobileBlock>> stages;
  // The cells a side of what it gives, and their numbers.
  int64_t side = 16, width = 2048;
  EmbedderForm embedder;

  int64_t fused_in() const { return stages[stages.size() - 2].back().out + stages.back().back().out; }
  int64_t fused_wide() const;
  int64_t tokens() const { return side * side; }
  // Pictures have whole multiples of so many lines and columns.
  int64_t pixels_a_cell() const { return side << stages.size(); }
};

// vision_config; `out`: the decoder's width, `tokens`: of a picture.
MobileSpec read_mobile(const Config& vision, int64_t out, int64_t tokens);
std::vector<TowerPart> parts_of(const MobileSpec& spec);
// As a VisionSpec counts it, for what reads that of every tower.
VisionSpec vision_of(const MobileSpec& spec);
// Rows of a picture [1, 3, height, width]. Fault::Data where it cannot be looked at.
int64_t mobile_tokens(const MediaContent& content, const MobileSpec& spec);

}  // namespace apus
