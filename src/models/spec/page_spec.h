// SPDX-License-Identifier: Apache-2.0
// What models that read pages see with: SAM's tower, which looks at large squares through windows and makes few rows of
// them; behind it CLIP's layers, or queries that are learnt, or nothing; then one linear layer. A page is several
// views: tiles of it, and all of it in one square. Beside a SeeingSpec. No tensor library.
#pragma once

#include "media/media_item.h"
#include "media/sizes.h"
#include "models/spec/config.h"
#include "models/spec/seeing_spec.h"

namespace apus {

// How SAM's modules are called, below the tower's own name; those of a block below the block's.
struct SamNames {
  std::string patches = "patch_embed.proj", table = "pos_embed", blocks = "blocks";
  std::string norm1 = "norm1", norm2 = "norm2";
  // Two convolutions behind the blocks, each with a norm behind it.
  std::string neck = "neck.0", neck_norm = "neck.1", neck_wide = "neck.2", neck_end = "neck.3";
  // Whole names of two convolutions that halve both sides.
  std::string narrow = "", narrower = "";
};

struct SamSpec {
  std::string name = "model.sam_model";
  int64_t width = 768, layers = 12, heads = 12, ffn = 3072;
  int64_t channels = 3, patch = 16, side = 64;  // patches a side of the pictures that its tables were made for
  // Patches a side of what sees itself; the layers that see all of a picture.
  int64_t window = 14;
  std::vector<int64_t> full_layers = {2, 5, 8, 11};
  bool positions = true, relative = true, qkv_bias = true;
  NormSpec norm = {NormKind::MeanAndBias, 1e-6};
  // Channels of the neck, and of the two convolutions.
  int64_t neck = 256, narrow = 512, out = 1024;
  SamNames names = {};

  int64_t head_size() const { return width / heads; }
  bool sees_all(int64_t layer) const;
  // Of what so many patches a side become.
  static int64_t rows(int64_t patches) { return halved_twice(patches); }
};

// A text model's layers, in which SAM's rows see each other and queries behind them see these and the queries before
// them. What becomes of the queries is the picture.
struct QuerySpec {
  std::string name = "model.qwen2_model.model.model";  // of layers and last norm
  int64_t width = 0, layers = 0, heads = 0, kv_heads = 0, ffn = 0;
  double eps = 1e-6, turn_base = 1e6;
  bool qkv_bias = true;
  // Tables of queries, for pictures of so many rows at most; from the smallest on.
  struct Table {
    std::string name;
    int64_t count = 0;
  };
  std::vector<Table> tables = {};
  int64_t head_size() const { return width / heads; }
  // Fault::Data for larger pictures.
  const Table& table_for(int64_t rows) const;
};

struct PageSpec {
  SamSpec sam;
  // Reads SAM's rows in place of patches, and both are then joined.
  std::optional<VisionSpec> clip = {};
  std::optional<QuerySpec> queries = {};
  std::string projector;
  int64_t out = 0;
  // Whole names of bare rows: behind each line of a view (tiles stand side by side in it), and behind all; "": none.
  std::string newline = "", separator = "";

  int64_t read_by_projector() const;
  // Rows of one view of so many patches a side.
  int64_t rows_of_view(int64_t patches) const;
  // Of all views of a page, its lines' ends and its own.
  int64_t tokens(const MediaContent& content) const;
};

// Tiles of a page before the view of all of it: media/pages.cpp says in MediaContent::came_as how many lines and
// columns there are.
struct PageTiles {
  int64_t rows = 0, columns = 0;
};
PageTiles tiles_of(const MediaContent& content);

std::vector<TowerPart> parts_of(const PageSpec& spec);
// sam_config as transformers writes it.
SamSpec read_sam(const Config& sam);
// SAM as a VisionSpec counts it, for what reads that of every tower.
VisionSpec vision_of(const PageSpec& page);

}  // namespace apus
