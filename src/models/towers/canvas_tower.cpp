// SPDX-License-Identifier: Apache-2.0
// Shapes: I pictures, T tiles of each, M rows of a tile, N rows of all, D width.
#include "models/towers/canvas_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <memory>

#include "nn/run_again.h"
#include "ops/ops.h"

namespace apus {

// Rows of tiles in the order that the layers have them in: all that are of a picture, one picture behind the other,
// and then all that fill them up. Those of a picture see both kinds, those that fill up only the picture's own.
struct CanvasTower::Order {
  Order(const std::vector<CanvasTiles>& tiles, const CanvasSpec& spec, at::Device device) {
    const int64_t filled = spec.filled_rows(), own = spec.tile_rows();
    std::vector<int64_t> of_pictures, others, of_both;
    std::vector<int32_t> ends_own{0}, ends_others{0}, ends_both{0};
    std::vector<int64_t> place(tiles.size() * static_cast<size_t>(spec.tiles * filled));
    const auto is_own = [&](size_t i, int64_t tile, int64_t row) { return tile < tiles[i].count() && row < own; };
    const auto each = [&](size_t i, const auto& f) {
      for (int64_t tile = 0; tile < spec.tiles; ++tile)
        for (int64_t row = 0; row < filled; ++row)
          f((static_cast<int64_t>(i) * spec.tiles + tile) * filled + row, is_own(i, tile, row), row);
    };
    for (size_t i = 0; i < tiles.size(); ++i) {
      each(i, [&](int64_t n, bool is, int64_t) { (is ? of_pictures : others).push_back(n); });
      ends_own.push_back(static_cast<int32_t>(of_pictures.size()));
      ends_others.push_back(static_cast<int32_t>(others.size()));
      ends_both.push_back(static_cast<int32_t>(static_cast<int64_t>(i + 1) * spec.tiles * filled));
      longest_own = std::max<int64_t>(longest_own, ends_own[i + 1] - ends_own[i]);
      longest_others = std::max<int64_t>(longest_others, ends_others[i + 1] - ends_others[i]);
    }
    pictures = std::ssize(of_pictures), longest_both = spec.tiles * filled;
    for (size_t n = 0; n < of_pictures.size(); ++n)
      place[static_cast<size_t>(of_pictures[n])] = std::ssize(order), order.push_back(of_pictures[n]);
    for (const int64_t n : others) place[static_cast<size_t>(n)] = std::ssize(order), order.push_back(n);
    for (size_t i = 0; i < tiles.size(); ++i) {
      each(i, [&](int64_t n, bool is, int64_t) {
        if (is) of_both.push_back(place[static_cast<size_t>(n)]);
      });
      each(i, [&](int64_t n, bool is, int64_t) {
        if (!is) of_both.push_back(place[static_cast<size_t>(n)]);
      });
      each(i, [&](int64_t n, bool, int64_t row) {
        if (row < own) given.push_back(place[static_cast<size_t>(n)]);
      });
    }
    const auto on_device = [&](const std::vector<int64_t>& rows) { return at::tensor(rows, at::kLong).to(device); };
    const auto ends = [&](const std::vector<int32_t>& cu) { return at::tensor(cu, at::kInt).to(device); };
    order_N = on_device(order), given_R = on_device(given), both_N = on_device(of_both);
    cu_own = ends(ends_own), cu_others = ends(ends_others), cu_both = ends(ends_both);
  }
  std::vector<int64_t> order, given;
  int64_t pictures = 0, longest_own = 0, longest_others = 0, longest_both = 0;
  at::Tensor order_N;  // by it rows of tiles come into this order
  at::Tensor both_N;   // of each picture its own rows and then those that fill it up
  at::Tensor given_R;  // the rows that the tower gives, tile by tile
  at::Tensor cu_own, cu_others, cu_both;
};

std::vector<CanvasTower::Layer> CanvasTower::layers(const TowerParts& parts, const std::string& name, int64_t count,
                                                    bool gated) const {
  std::vector<Layer> all;
  for (int64_t i = 0; i < count; ++i) {
    const auto own = [&](const char* part) { return str(spec_.name, ".", name, ".layers.", i, ".", part); };
    all.push_back({.before_attention = &parts.norm(own("input_layernorm")),
                   .before_feed_forward = &parts.norm(own("post_attention_layernorm")),
                   .q = &parts.linear(own("self_attn.q_proj")),
                   .k = &parts.linear(own("self_attn.k_proj")),
                   .v = &parts.linear(own("self_attn.v_proj")),
                   .out = &parts.linear(own("self_attn.o_proj")),
                   .up = &parts.linear(own("mlp.fc1")),
                   .down = &parts.linear(own("mlp.fc2"))});
    if (!gated) continue;
    all.back().attention_gate = &parts.bare(own("gate_attn"));
    all.back().feed_forward_gate = &parts.bare(own("gate_ffn"));
  }
  return all;
}

CanvasTower::CanvasTower(const CanvasSpec& spec, const TowerParts& parts) : spec_(spec) {
  const auto own = [&](const std::string& part) { return spec.name + "." + part; };
  patches_ = &parts.table(own("patch_embedding"));
  first_ = &parts.bare(own("class_embedding"));
  positions_ = &parts.bare(own("gated_positional_embedding.embedding"));
  positions_gate_ = &parts.bare(own("gated_positional_embedding.gate"));
  tile_positions_ = &parts.table(own("gated_positional_embedding.tile_embedding"));
  before_gate_ = &parts.bare(own("pre_tile_positional_embedding.gate"));
  tile_before_ = &parts.table(own("pre_tile_positional_embedding.embedding"));
  behind_gate_ = &parts.bare(own("post_tile_positional_embedding.gate"));
  tile_behind_ = &parts.table(own("post_tile_positional_embedding.embedding"));
  norm_in_ = &parts.norm(own("layernorm_pre")), norm_out_ = &parts.norm(own("layernorm_post"));
  local_ = layers(parts, "transformer", spec.layers, false);
  global_ = layers(parts, "global_transformer", spec.global_layers, true);
  projector_ = &parts.linear(spec.projector);
}

// [I, T, rows, D]: what a table has for each tile of a picture of this shape, as far as it is opened.
at::Tensor CanvasTower::of_shape(const Table& table, const Param& gate, const at::Tensor& shape_I, int64_t rows) const {
  const at::Tensor own = at::index_select(table.weight(), 0, shape_I);
  return own.reshape({-1, spec_.tiles, rows, spec_.width}) * gate.data.tanh();
}

// [I, T, M, D]: a row of the tile, its patches, and rows of zeros behind them.
at::Tensor CanvasTower::embedded(const at::Tensor& patch_NP, const std::vector<CanvasTiles>& tiles,
                                 const at::Tensor& shape_I) const {
  const at::Tensor read_ND = at::matmul(patch_NP, patches_->weight().reshape({spec_.width, -1}).t());
  std::vector<at::Tensor> pictures;
  int64_t first = 0;
  for (const CanvasTiles& own : tiles) {  // tiles without pixels are zeros
    const at::Tensor x = read_ND.narrow(0, first, own.count() * spec_.patches());
    first += x.size(0);
    pictures.push_back(at::constant_pad_nd(x, {0, 0, 0, (spec_.tiles - own.count()) * spec_.patches()}));
  }
  at::Tensor x = at::stack(pictures).reshape({-1, spec_.tiles, spec_.patches(), spec_.width});
  x = x + of_shape(*tile_before_, *before_gate_, shape_I, 1);
  x = at::cat({first_->data.expand({x.size(0), spec_.tiles, 1, spec_.width}), x}, 2);
  x = x + positions_->data * (1 - positions_gate_->data.tanh()) +
      of_shape(*tile_positions_, *positions_gate_, shape_I, spec_.tile_rows());
  return at::constant_pad_nd((*norm_in_)(x), {0, 0, 0, spec_.filled_rows() - spec_.tile_rows()});
}

at::Tensor CanvasTower::attended(const Layer& l, const at::Tensor& x_ND, const Order& o, const Step& s) const {
  const int64_t n = x_ND.size(0), h = spec_.head_size(), others = n - o.pictures;
  const auto heads = [&](const Linear* linear) { return (*linear)(x_ND, s).reshape({n, spec_.heads, h}); };
  const at::Tensor q = heads(l.q), k = heads(l.k), v = heads(l.v);
  const ops::AttentionRule rule{.scale = 1 / std::sqrt(static_cast<double>(h)), .mask = {.causal = false}};
  const at::Tensor of_own =
      ops::attention(q.narrow(0, 0, o.pictures), at::index_select(k, 0, o.both_N), at::index_select(v, 0, o.both_N),
                     o.cu_own, o.cu_both, o.longest_own, o.longest_both, rule);
  const at::Tensor of_others =
      ops::attention(q.narrow(0, o.pictures, others), k.narrow(0, 0, o.pictures), v.narrow(0, 0, o.pictures),
                     o.cu_others, o.cu_own, o.longest_others, o.longest_own, rule);
  return (*l.out)(at::cat({of_own, of_others}).reshape({n, -1}), s);
}

at::Tensor CanvasTower::through(const Layer& l, const at::Tensor& x_ND, const Order& o, const Step& s) const {
  const auto opened = [](const at::Tensor& y, const Param* gate) { return gate ? y * gate->data.tanh() : y; };
  const at::Tensor sum_ND = x_ND + opened(attended(l, (*l.before_attention)(x_ND), o, s), l.attention_gate);
  const at::Tensor up = at::gelu((*l.up)((*l.before_feed_forward)(sum_ND), s));
  return sum_ND + opened((*l.down)(up, s), l.feed_forward_gate);
}

at::Tensor CanvasTower::operator()(const at::Tensor& patch_NP, const std::vector<const MediaContent*>& pictures,
                                   const StepOf& step_of, bool again) const {
  std::vector<CanvasTiles> tiles;
  std::vector<int64_t> shapes;
  for (const MediaContent* c : pictures) {
    tiles.push_back(canvas_tiles(*c, spec_));
    shapes.push_back(spec_.shape_number(tiles.back()));
  }
  const at::Device device = patch_NP.device();
  const at::Tensor shape_I = at::tensor(shapes, at::kLong).to(device);
  // Shared with layers that run again when this has returned.
  const auto order = std::make_shared<const Order>(tiles, spec_, device);
  const auto ordered = [&](const at::Tensor& x) {
    return at::index_select(x.reshape({-1, spec_.width}), 0, order->order_N);
  };
  at::Tensor x_ND = ordered(embedded(patch_NP, tiles, shape_I));
  const Step s = step_of(x_ND.size(0));
  const auto run = [&](const Layer& l) {
    const RunPart part = [this, &l, order](const at::Tensor& x, const Step& own) { return through(l, x, *order, own); };
    x_ND = again ? run_again(x_ND, s, Memo::kNothing, part) : part(x_ND, s);
  };
  const auto given = [&](const at::Tensor& x) { return at::index_select(x, 0, order->given_R); };
  std::vector<at::Tensor> taken(spec_.taken_layers.size());
  for (size_t i = 0; i < local_.size(); ++i) {
    run(local_[i]);
    for (size_t t = 0; t < taken.size(); ++t)
      if (spec_.taken_layers[t] == static_cast<int64_t>(i)) taken[t] = given(x_ND);
  }
  const at::Tensor behind = of_shape(*tile_behind_, *behind_gate_, shape_I, 1);
  x_ND = (*norm_out_)(x_ND) + ordered(behind.expand({-1, -1, spec_.filled_rows(), -1}));
  for (const Layer& l : global_) run(l);
  std::vector<at::Tensor> all{given(x_ND)};
  // The first numbers of all taken layers, then the second ones.
  if (!taken.empty()) all.push_back(at::stack(taken, 2).flatten(1));
  const at::Tensor rows = at::cat(all, 1);
  return (*projector_)(rows, step_of(rows.size(0)));
}

}  // namespace apus
