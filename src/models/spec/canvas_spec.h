// SPDX-License-Identifier: Apache-2.0
// What models see with that lay a picture on a canvas of square tiles and read it beside the text, in layers of their
// own (DecoderSpec::pictures): a tower of two transformers over all tiles of a picture, and one linear layer. Beside a
// SeeingSpec. No tensor library.
#pragma once

#include "media/media_item.h"
#include "models/spec/config.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// Lines and columns of a picture's tiles, which media/mllama.cpp says in MediaContent::came_as.
struct CanvasTiles {
  int64_t high = 0, wide = 0;
  int64_t count() const { return high * wide; }
};

struct CanvasSpec {
  std::string name = "model.vision_model", projector = "model.multi_modal_projector";
  int64_t width = 0, layers = 0, heads = 0, ffn = 0;
  // Behind them, of all that the tiles of a picture are, opened by learnt numbers.
  int64_t global_layers = 0;
  int64_t channels = 3, patch = 0, side = 0;  // of a tile, in pixels
  // A picture has at most so many, and rows for as many: those without pixels are filled up.
  int64_t tiles = 0;
  // Of a row what these layers give, beside what the last global one does.
  std::vector<int64_t> taken_layers = {};
  NormSpec norm = {NormKind::MeanAndBias, 1e-5};
  TowerActivation act = TowerActivation::Gelu;
  int64_t out = 0;

  int64_t head_size() const { return width / heads; }
  int64_t taken_width() const { return width * (1 + std::ssize(taken_layers)); }
  int64_t patches() const { return (side / patch) * (side / patch); }
  // Of a tile: one of its own, and its patches.
  int64_t tile_rows() const { return patches() + 1; }
  // In the tower rows of zeros fill them up to a multiple of eight.
  int64_t filled_rows() const { return (tile_rows() + 7) / 8 * 8; }
  int64_t rows() const { return tiles * tile_rows(); }
  // The number of a picture's shape, from 1 on: all that there can be are counted by lines, then by columns.
  // Fault::Data where it has too many tiles. And the shape of a number.
  int64_t shape_number(CanvasTiles tiles) const;
  CanvasTiles tiles_of(int64_t shape) const;
  // How many shapes there are. 0 stands for no picture.
  int64_t shapes() const;
};

// Those of a picture. Fault::Data where its numbers are no such tiles.
CanvasTiles canvas_tiles(const MediaContent& content, const CanvasSpec& spec);

// The tower of config.json's vision_config, for a decoder of this width.
CanvasSpec read_canvas(const Config& vision, int64_t out);
std::vector<TowerPart> parts_of(const CanvasSpec& spec);
// As a VisionSpec counts it, for what reads that of every tower.
VisionSpec vision_of(const CanvasSpec& spec);

}  // namespace apus
