// SPDX-License-Identifier: Apache-2.0
// Shapes: B views of one size, M rows of a view, N rows of all, D width.
#include "models/towers/page_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <map>

#include "nn/run_again.h"
#include "ops/ops.h"

namespace apus {

PageTower::PageTower(const PageSpec& spec, const TowerParts& parts) : spec_(spec), sam_(spec.sam, parts) {
  if (spec.clip) clip_.emplace(*spec.clip, parts);
  projector_ = &parts.linear(spec.projector);
  if (!spec.newline.empty()) newline_ = &parts.bare(spec.newline);
  if (!spec.separator.empty()) separator_ = &parts.bare(spec.separator);
  if (!spec.queries) return;
  const QuerySpec& q = *spec.queries;
  for (int64_t i = 0; i < q.layers; ++i) {
    const auto linear = [&](const char* part) { return &parts.linear(str(q.name, ".layers.", i, ".", part)); };
    const auto norm = [&](const char* part) { return &parts.norm(str(q.name, ".layers.", i, ".", part)); };
    layers_.push_back({.before_attention = norm("input_layernorm"),
                       .before_feed_forward = norm("post_attention_layernorm"),
                       .q = linear("self_attn.q_proj"),
                       .k = linear("self_attn.k_proj"),
                       .v = linear("self_attn.v_proj"),
                       .out = linear("self_attn.o_proj"),
                       .gate = linear("mlp.gate_proj"),
                       .up = linear("mlp.up_proj"),
                       .down = linear("mlp.down_proj")});
  }
  last_norm_ = &parts.norm(q.name + ".norm");
  for (const QuerySpec::Table& table : q.tables) queries_.push_back(&parts.table(table.name));
}

namespace {
// As a text's positions turn it. Computed on the host in f32, as the original implementation holds them.
Turn text_turn(int64_t pictures, int64_t length, int64_t head, double base, at::Device device) {
  const int64_t half = head / 2;
  at::Tensor cos = at::empty({length, half}, at::kFloat), sin = at::empty({length, half}, at::kFloat);
  for (int64_t t = 0; t < length; ++t)
    for (int64_t k = 0; k < half; ++k) {
      const float speed = 1 / std::pow(static_cast<float>(base), static_cast<float>(2 * k) / static_cast<float>(head));
      const auto angle = static_cast<double>(static_cast<float>(t) * speed);
      cos.data_ptr<float>()[t * half + k] = static_cast<float>(std::cos(angle));
      sin.data_ptr<float>()[t * half + k] = static_cast<float>(std::sin(angle));
    }
  return {cos.repeat({pictures, 1}).to(device), sin.repeat({pictures, 1}).to(device)};
}

at::Tensor ends_of(int64_t runs, int64_t length, at::Device device) {
  return at::arange(0, runs * length + 1, length, at::TensorOptions(device).dtype(at::kInt));
}
}  // namespace

// `seen` rows of each picture see each other; those behind them see these and what stands before them.
at::Tensor PageTower::through(const Layer& l, const at::Tensor& x_ND, int64_t pictures, int64_t seen,
                              const Step& s) const {
  const QuerySpec& spec = *spec_.queries;
  const int64_t h = spec.head_size(), length = x_ND.size(0) / pictures, asking = length - seen;
  const at::Tensor normed = (*l.before_attention)(x_ND);
  const auto heads = [&](const Linear* linear) { return (*linear)(normed, s).reshape({x_ND.size(0), -1, h}); };
  const Turn turn = text_turn(pictures, length, h, spec.turn_base, x_ND.device());
  const auto [q, k] = ops::rope(heads(l.q), heads(l.k), turn.cos, turn.sin);
  const at::Tensor v = heads(l.v);
  const auto part = [&](const at::Tensor& t, int64_t first, int64_t count) {
    return t.reshape({pictures, length, t.size(1), h}).narrow(1, first, count).reshape({-1, t.size(1), h});
  };
  const double scale = 1 / std::sqrt(static_cast<double>(h));
  const at::Tensor ends_seen = ends_of(pictures, seen, x_ND.device());
  const at::Tensor of_seen = ops::attention(part(q, 0, seen), part(k, 0, seen), part(v, 0, seen), ends_seen, ends_seen,
                                            seen, seen, {.scale = scale, .mask = {.causal = false}});
  const at::Tensor of_asking =
      ops::attention(part(q, seen, asking), k, v, ends_of(pictures, asking, x_ND.device()),
                     ends_of(pictures, length, x_ND.device()), asking, length, {.scale = scale});
  const at::Tensor y = at::cat({of_seen.reshape({pictures, seen, -1}), of_asking.reshape({pictures, asking, -1})}, 1);
  const at::Tensor sum_ND = x_ND + (*l.out)(y.reshape({x_ND.size(0), -1}), s);
  const at::Tensor fed_ND = (*l.before_feed_forward)(sum_ND);
  return sum_ND + (*l.down)(ops::swiglu((*l.gate)(fed_ND, s), (*l.up)(fed_ND, s)), s);
}

// What queries find in a view's rows.
at::Tensor PageTower::asked(const at::Tensor& x_BMD, const StepOf& step_of, bool again) const {
  const QuerySpec& spec = *spec_.queries;
  const int64_t pictures = x_BMD.size(0), seen = x_BMD.size(1);
  const auto which = static_cast<size_t>(&spec.table_for(seen) - spec.tables.data());
  const at::Tensor asking = queries_[which]->weight().unsqueeze(0).expand({pictures, -1, -1});
  at::Tensor x_ND = at::cat({x_BMD, asking}, 1).reshape({-1, spec.width});
  // Ranks that sum gradients wait for those of every table, whatever pages they have.
  for (const Table* table : queries_)
    if (table->weight().requires_grad()) x_ND = x_ND + table->weight().sum() * 0;
  const Step s = step_of(x_ND.size(0));
  for (const Layer& l : layers_) {
    const RunPart part = [this, &l, pictures, seen](const at::Tensor& in, const Step& own) {
      return through(l, in, pictures, seen, own);
    };
    x_ND = again ? run_again(x_ND, s, Memo::kNothing, part) : part(x_ND, s);
  }
  const at::Tensor normed = (*last_norm_)(x_ND).reshape({pictures, -1, spec.width});
  return normed.narrow(1, seen, normed.size(1) - seen);
}

// [B, M, out] of views of one size.
at::Tensor PageTower::views(const at::Tensor& patch_NP, int64_t side, const StepOf& step_of, bool again) const {
  const at::Tensor seen = sam_(patch_NP, side, step_of, again);
  const int64_t pictures = seen.size(0), small = seen.size(1);
  at::Tensor x_BMD = seen.reshape({pictures, small * small, -1});
  if (queries_.size()) x_BMD = asked(x_BMD, step_of, again);
  if (clip_) {
    const std::vector<Grid> grids(static_cast<size_t>(pictures), Grid{1, small, small});
    const at::Tensor more = (*clip_)(x_BMD.reshape({-1, x_BMD.size(2)}), grids, step_of, again).row_MD;
    x_BMD = at::cat({more.reshape({pictures, small * small, -1}), x_BMD}, 2);
  }
  const at::Tensor rows = x_BMD.reshape({-1, x_BMD.size(2)}).contiguous();
  return (*projector_)(rows, step_of(rows.size(0))).reshape({pictures, x_BMD.size(1), -1});
}

at::Tensor PageTower::with_ends(const at::Tensor& x_HWD) const {
  const int64_t width = x_HWD.size(2);
  if (!newline_) return x_HWD.reshape({-1, width});
  const at::Tensor ends = newline_->data.reshape({1, 1, width}).expand({x_HWD.size(0), 1, width});
  return at::cat({x_HWD, ends}, 1).reshape({-1, width});
}

// Tiles side by side, then all of the page.
at::Tensor PageTower::page(const MediaContent& content, const std::vector<at::Tensor>& views) const {
  const PageTiles tiles = tiles_of(content);
  const auto square = [&](const at::Tensor& x) {
    const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(x.size(0)))));
    return x.reshape({side, side, -1});
  };
  std::vector<at::Tensor> parts;
  for (int64_t r = 0; newline_ && r < tiles.rows; ++r) {
    std::vector<at::Tensor> line;
    for (int64_t c = 0; c < tiles.columns; ++c)
      line.push_back(square(views[static_cast<size_t>(r * tiles.columns + c)]));
    parts.push_back(with_ends(at::cat(line, 1)));
  }
  if (!newline_) parts.assign(views.begin(), views.end() - 1);
  parts.push_back(with_ends(square(views.back())));
  if (separator_) parts.push_back(separator_->data.unsqueeze(0));
  return at::cat(parts, 0);
}

at::Tensor PageTower::operator()(const at::Tensor& patch_NP, const std::vector<const MediaContent*>& pages,
                                 const StepOf& step_of, bool again) const {
  std::vector<int64_t> sides;
  for (const MediaContent* c : pages) {
    if (c->grids.empty()) sides.push_back(c->grid[1]);
    for (const auto& grid : c->grids) sides.push_back(grid[1]);
  }
  std::map<int64_t, std::vector<size_t>> of_side;
  std::vector<int64_t> first;
  int64_t at = 0;
  for (size_t i = 0; i < sides.size(); at += sides[i] * sides[i], ++i)
    of_side[sides[i]].push_back(i), first.push_back(at);
  std::vector<at::Tensor> seen(sides.size());
  for (const auto& [side, all] : of_side) {
    std::vector<at::Tensor> own;
    for (const size_t i : all) own.push_back(patch_NP.narrow(0, first[i], side * side));
    const at::Tensor x_BMD = views(at::cat(own, 0), side, step_of, again);
    for (size_t k = 0; k < all.size(); ++k) seen[all[k]] = x_BMD[static_cast<int64_t>(k)];
  }
  std::vector<at::Tensor> out;
  auto next = seen.begin();
  for (const MediaContent* c : pages) {
    const auto count = static_cast<std::ptrdiff_t>(std::max<size_t>(c->grids.size(), 1));
    out.push_back(page(*c, {next, next + count}));
    next += count;
  }
  return at::cat(out, 0);
}

}  // namespace apus
