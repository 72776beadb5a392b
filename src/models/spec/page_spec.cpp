// SPDX-License-Identifier: Apache-2.0
#include "models/spec/page_spec.h"

#include <algorithm>

#include "base/error.h"

namespace apus {

bool SamSpec::sees_all(int64_t layer) const {
  return std::find(full_layers.begin(), full_layers.end(), layer) != full_layers.end();
}

const QuerySpec::Table& QuerySpec::table_for(int64_t rows) const {
  for (const Table& table : tables)
    if (rows <= table.count) return table;
  fail(Fault::Data, "a view of ", rows, " rows: the model has queries for ", tables.back().count, " at most");
}

int64_t PageSpec::read_by_projector() const { return queries ? queries->width : sam.out + (clip ? clip->width : 0); }

int64_t PageSpec::rows_of_view(int64_t patches) const {
  const int64_t side = SamSpec::rows(patches);
  return queries ? queries->table_for(side * side).count : side * side;
}

PageTiles tiles_of(const MediaContent& content) {
  const int64_t tiles = std::max<int64_t>(static_cast<int64_t>(content.grids.size()) - 1, 0);
  if (tiles == 0) return {};
  const PageTiles grid{content.came_as[0], content.came_as[1]};
  require(grid.rows > 0 && grid.columns > 0 && grid.rows <= tiles && grid.rows * grid.columns == tiles, Fault::Data,
          "the image comes as ", tiles, " tiles, and these as ", grid.rows, " lines of ", grid.columns);
  return grid;
}

int64_t PageSpec::tokens(const MediaContent& content) const {
  const PageTiles tiles = tiles_of(content);
  const auto side_of = [](const std::array<int64_t, 3>& grid) {
    require(grid[0] == 1 && grid[1] == grid[2] && grid[1] > 0 && grid[1] < 4096, Fault::Data, "a view of ", grid[0],
            " x ", grid[1], " x ", grid[2], " patches (time, height, width): this model looks at squares");
    return grid[1];
  };
  const auto grids = content.grids.empty() ? std::vector<std::array<int64_t, 3>>{content.grid} : content.grids;
  const int64_t whole = side_of(grids.back()), small = side_of(grids.front());
  for (size_t i = 0; i + 1 < grids.size(); ++i)
    require(side_of(grids[i]) == small, Fault::Data, "the image's tiles have different sizes");
  int64_t count = rows_of_view(whole) + tiles.rows * tiles.columns * rows_of_view(small);
  if (!newline.empty()) count += SamSpec::rows(whole) + tiles.rows * SamSpec::rows(small);
  return count + (separator.empty() ? 0 : 1);
}

namespace {
using PageKind = TowerPart::Kind;

class PageParts {
 public:
  explicit PageParts(const PageSpec& spec) : s_(spec) {}
  std::vector<TowerPart> all() {
    for (const std::string& row : {s_.newline, s_.separator})
      if (!row.empty()) put(PageKind::Bare, row, {s_.out});
    sam(s_.sam);
    if (s_.clip)
      for (TowerPart& part : parts_of(*s_.clip)) parts_.push_back(std::move(part));
    if (s_.queries) queries(*s_.queries);
    put(PageKind::Linear, s_.projector, {s_.out, s_.read_by_projector()}, true);
    // Bare ones are the tower's own, and come before those of modules.
    std::stable_partition(parts_.begin(), parts_.end(), [](const TowerPart& p) { return p.kind == PageKind::Bare; });
    return std::move(parts_);
  }

 private:
  void put(PageKind kind, const std::string& name, std::vector<int64_t> shape, bool bias = false, NormSpec norm = {}) {
    parts_.push_back({kind, name, std::move(shape), bias, norm});
  }
  void sam(const SamSpec& s) {
    const auto own = [&](const std::string& name) { return s.name + "." + name; };
    if (s.positions) put(PageKind::Bare, own(s.names.table), {1, s.side, s.side, s.width});
    for (int64_t i = 0; s.relative && i < s.layers; ++i)
      for (const char* axis : {"attn.rel_pos_h", "attn.rel_pos_w"})
        put(PageKind::Bare, own(str(s.names.blocks, ".", i, ".", axis)),
            {2 * (s.sees_all(i) ? s.side : s.window) - 1, s.head_size()});
    put(PageKind::Table, own(s.names.patches), {s.width, s.channels, s.patch, s.patch}, true);
    for (int64_t i = 0; i < s.layers; ++i) {
      const std::string block = own(str(s.names.blocks, ".", i, "."));
      put(PageKind::Norm, block + s.names.norm1, {s.width}, false, s.norm);
      put(PageKind::Linear, block + "attn.qkv", {3 * s.width, s.width}, s.qkv_bias);
      put(PageKind::Linear, block + "attn.proj", {s.width, s.width}, true);
      put(PageKind::Norm, block + s.names.norm2, {s.width}, false, s.norm);
      put(PageKind::Linear, block + "mlp.lin1", {s.ffn, s.width}, true);
      put(PageKind::Linear, block + "mlp.lin2", {s.width, s.ffn}, true);
    }
    const NormSpec norm{NormKind::MeanAndBias, 1e-6};
    put(PageKind::Table, own(s.names.neck), {s.neck, s.width, 1, 1});
    put(PageKind::Norm, own(s.names.neck_norm), {s.neck}, false, norm);
    put(PageKind::Table, own(s.names.neck_wide), {s.neck, s.neck, 3, 3});
    put(PageKind::Norm, own(s.names.neck_end), {s.neck}, false, norm);
    put(PageKind::Table, s.names.narrow, {s.narrow, s.neck, 3, 3});
    put(PageKind::Table, s.names.narrower, {s.out, s.narrow, 3, 3});
  }
  void queries(const QuerySpec& q) {
    const NormSpec norm{NormKind::Rms, q.eps};
    const int64_t kv = q.kv_heads * q.head_size();
    for (int64_t i = 0; i < q.layers; ++i) {
      const std::string layer = str(q.name, ".layers.", i, ".");
      put(PageKind::Norm, layer + "input_layernorm", {q.width}, false, norm);
      put(PageKind::Linear, layer + "self_attn.q_proj", {q.width, q.width}, q.qkv_bias);
      put(PageKind::Linear, layer + "self_attn.k_proj", {kv, q.width}, q.qkv_bias);
      put(PageKind::Linear, layer + "self_attn.v_proj", {kv, q.width}, q.qkv_bias);
      put(PageKind::Linear, layer + "self_attn.o_proj", {q.width, q.width});
      put(PageKind::Norm, layer + "post_attention_layernorm", {q.width}, false, norm);
      put(PageKind::Linear, layer + "mlp.gate_proj", {q.ffn, q.width});
      put(PageKind::Linear, layer + "mlp.up_proj", {q.ffn, q.width});
      put(PageKind::Linear, layer + "mlp.down_proj", {q.width, q.ffn});
    }
    put(PageKind::Norm, q.name + ".norm", {q.width}, false, norm);
    for (const QuerySpec::Table& table : q.tables) put(PageKind::Table, table.name, {table.count, q.width});
  }

  const PageSpec& s_;
  std::vector<TowerPart> parts_;
};
}  // namespace

std::vector<TowerPart> parts_of(const PageSpec& spec) { return PageParts(spec).all(); }

SamSpec read_sam(const Config& c) {
  SamSpec s;
  s.width = c.integer("hidden_size", 768), s.layers = c.integer("num_hidden_layers", 12);
  s.heads = c.integer("num_attention_heads", 12), s.channels = c.integer("num_channels", 3);
  s.patch = c.integer("patch_size", 16), s.window = c.integer("window_size", 14);
  s.ffn = c.integer("mlp_dim", static_cast<int64_t>(static_cast<double>(s.width) * c.number("mlp_ratio", 4)));
  const int64_t image = c.integer("image_size", 1024);
  if (c.find("global_attn_indexes")) s.full_layers = c.integers("global_attn_indexes");
  s.positions = c.flag("use_abs_pos", true), s.relative = c.flag("use_rel_pos", true);
  s.qkv_bias = c.flag("qkv_bias", true), s.neck = c.integer("output_channels", 256);
  s.norm.eps = c.number("layer_norm_eps", 1e-6);
  const std::string act = c.text("hidden_act", "gelu");
  require(s.layers > 0 && s.layers <= 4096 && s.heads > 0 && s.width > 0 && s.width % s.heads == 0 && s.ffn > 0 &&
              s.channels > 0 && s.patch > 0 && image > 0 && image % s.patch == 0 && s.window > 0 && s.neck > 0 &&
              act == "gelu",
          Fault::Model, "config.json: SAM's ", s.layers, " layers, ", s.heads, " heads, hidden_size ", s.width,
          ", patch_size ", s.patch, ", image_size ", image, ", window_size ", s.window,
          " do not fit together, or hidden_act is '", act, "' (gelu is supported)");
  s.side = image / s.patch;
  return s;
}

VisionSpec vision_of(const PageSpec& page) {
  const SamSpec& s = page.sam;
  VisionSpec v;
  v.name = s.name, v.merger = page.projector;
  v.width = s.width, v.layers = s.layers, v.heads = s.heads, v.ffn = s.ffn, v.out = page.out;
  v.channels = s.channels, v.patch = s.patch, v.merge = v.time_patch = 1, v.patch_has_time = false, v.turned = false;
  v.act = TowerActivation::Gelu;
  v.names.blocks = s.names.blocks == "layers" ? "layers" : "blocks";
  return v;
}

}  // namespace apus
