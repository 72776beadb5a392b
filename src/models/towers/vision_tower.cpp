// SPDX-License-Identifier: Apache-2.0
// Shapes: N patches, P numbers of a patch, D width, M merged rows, H head size, R rotated half.
#include "models/towers/vision_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "models/towers/convolution.h"
#include "models/towers/patch_rows.h"
#include "nn/attention.h"
#include "nn/run_again.h"
#include "ops/ops.h"

namespace apus {

namespace {
at::Tensor activated(TowerActivation act, const at::Tensor& x) {
  switch (act) {
    case TowerActivation::QuickGelu:
      return x * at::sigmoid(x * 1.702);
    case TowerActivation::Gelu:
      return at::gelu(x);
    case TowerActivation::GeluTanh:
      return at::gelu(x, "tanh");
    case TowerActivation::Silu:
      break;
  }
  return at::silu(x);
}

at::Tensor index_tensor(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::kLong).to(device);
}
}  // namespace

at::Tensor patches_of_planes(const at::Tensor& pictures, const VisionSpec& v) {
  const int64_t n = pictures.size(0), step = v.patch * v.merge;
  const int64_t rows = pictures.size(2) / step, columns = pictures.size(3) / step;
  return pictures.narrow(2, 0, rows * step)
      .narrow(3, 0, columns * step)
      .reshape({n, v.channels, rows, v.merge, v.patch, columns, v.merge, v.patch})
      .permute({0, 2, 5, 3, 6, 1, 4, 7})
      .reshape({-1, v.patch_numbers()});
}

// Runs of patches that see each other.
struct VisionTower::Segments {
  Segments(const std::vector<int32_t>& ends, at::Device device) : cu(at::tensor(ends, at::kInt).to(device)) {
    for (size_t i = 1; i < ends.size(); ++i) longest = std::max<int64_t>(longest, ends[i] - ends[i - 1]);
  }
  at::Tensor cu;
  int64_t longest = 0;
};

// What the layers read beside the patches. With windows, patches stand in the windows' order.
struct VisionTower::Layout {
  Turn turn;
  Segments frames, windows;
  at::Tensor patch_order, cell_back;  // undefined: as they came
  // Of parts of frames: the patches that are looked at, and their runs. Undefined: all are.
  at::Tensor looked_at = {};
  std::optional<Segments> keys = {};
};

VisionTower::VisionTower(const VisionSpec& spec, const TowerParts& parts) : spec_(spec) {
  const auto name = [&](const std::string& part) { return spec.name + "." + part; };
  if (!spec.reads_rows) patches_ = &parts.table(name(spec.names.patches));
  if (spec.names.first) first_ = &parts.bare(name(spec.names.first));
  if (spec.names.first_angles) first_angles_ = &parts.bare(name(spec.names.first_angles));
  if (spec.bare_table())
    first_and_positions_ = &parts.bare(name(spec.names.table));
  else if (spec.table_form == TableForm::Axes)
    axes_ = &parts.bare(name(spec.names.table));
  else if (spec.table_side > 0)
    positions_ = &parts.table(name(spec.names.table));
  if (!spec.line_end.empty()) line_end_ = &parts.bare(spec.line_end), between_ = &parts.bare(spec.between);
  if (spec.names.cells_minus) cells_minus_ = &parts.bare(name(spec.names.cells_minus));
  if (spec.names.cells_times) cells_times_ = &parts.bare(name(spec.names.cells_times));
  if (spec.names.norm_patches) norm_patches_ = &parts.norm(name(spec.names.norm_patches));
  if (spec.names.norm_in) norm_in_ = &parts.norm(name(spec.names.norm_in));
  if (spec.names.norm_out) norm_out_ = &parts.norm(name(spec.names.norm_out));
  for (int64_t i = 0; i < spec.layers; ++i) {
    const VisionNames& n = spec.names;
    const auto own = [&](const char* what) { return name(str(n.blocks, ".", i, ".", what)); };
    const auto norm = [&](const char* what) { return what ? &parts.norm(own(what)) : nullptr; };
    const auto linear = [&](const char* what) {
      Product product{what ? &parts.linear(own(what)) : nullptr};
      for (size_t k = 0; what && spec.clipped && k < 4; ++k)
        product.limits[k] = &parts.bare(limit_name(own(what), kLimitNames[k]));
      return product;
    };
    const auto bare = [&](const char* what) { return what ? &parts.bare(own(what)) : nullptr; };
    const auto deep = std::find(spec.deep_layers.begin(), spec.deep_layers.end(), i);
    Block b{.norm1 = norm(n.norm1),
            .norm2 = norm(n.norm2),
            .after_attention = norm(n.after_attention),
            .after_feed_forward = norm(n.after_feed_forward),
            .qkv = linear(n.qkv),
            .q = linear(n.qkv ? nullptr : n.q),
            .k = linear(n.qkv ? nullptr : n.k),
            .v = linear(n.qkv ? nullptr : n.v),
            .proj = linear(n.proj),
            .q_norm = norm(n.q_norm),
            .k_norm = norm(n.k_norm),
            .scale1 = bare(n.scale1),
            .scale2 = bare(n.scale2),
            .gate = linear(n.gate),
            .up = linear(n.up),
            .down = linear(n.down),
            .full = spec.window == 0 ||
                    std::find(spec.full_layers.begin(), spec.full_layers.end(), i) != spec.full_layers.end(),
            .deep = deep == spec.deep_layers.end() ? -1 : static_cast<int>(deep - spec.deep_layers.begin())};
    blocks_.push_back(b);
  }
  if (const VisionNames& n = spec.names; spec.halved_behind >= 0) {
    const auto linear = [&](const char* what) { return &parts.linear(name(what)); };
    halving_ = Halving{&parts.norm(name(n.half_norm)),
                       &parts.norm(name(n.half_cell_norm)),
                       linear(n.half_q),
                       linear(n.half_k),
                       linear(n.half_v),
                       linear(n.half_proj),
                       linear(n.half_in),
                       linear(n.half_out)};
  }
  if (spec.names.narrow) {
    narrow_ = &parts.table(name(spec.names.narrow)), narrower_ = &parts.table(name(spec.names.narrower));
  }
  if (spec.names.merger_conv) cell_maker_ = &parts.table(name(spec.names.merger_conv));
  const auto merger = [&](const std::string& m, bool norm_first) {
    const VisionNames& n = spec.names;
    const auto linear = [&](const char* what) { return what ? &parts.linear(m + what) : nullptr; };
    return Merger{n.merger_norm ? &parts.norm(m + n.merger_norm) : nullptr,
                  linear(n.merger_cells),
                  linear(n.merger_matrix ? nullptr : n.merger_in),
                  linear(n.merger_matrix || spec.words > 0 ? nullptr : n.merger_out),
                  n.merger_matrix ? &parts.bare(m + n.merger_matrix) : nullptr,
                  norm_first,
                  linear(n.merger_before),
                  linear(n.merger_gate)};
  };
  if (spec.resampler.queries > 0)
    resampler_.emplace(spec, parts);
  else if (spec.lines.cell > 0)
    lines_.emplace(spec, parts);
  else if (spec.pairs.cell > 0)
    pairs_.emplace(spec, parts);
  else
    merger_ = merger(spec.merger_name() + ".", spec.merger_norm_first);
  if (!spec.merger_end.empty()) merger_.end = &parts.linear(spec.merger_end);
  if (spec.words > 0) words_ = &parts.table(spec.word_table);
  for (size_t i = 0; i < spec.deep_layers.size(); ++i)
    deep_mergers_.push_back(merger(name(str(spec.names.deep_mergers, ".", i, ".")), false));
}

VisionTower::Layout VisionTower::layout(const std::vector<Grid>& grids, at::Device device,
                                        const FrameParts& parts) const {
  PatchPlaces places = patch_places(grids, spec_.merge);
  if (spec_.window == 0) {
    std::vector<int32_t> ends = frame_ends(grids);
    Turn turn = spec_.turned ? patch_turns(places, spec_, device) : Turn();
    if (spec_.turned && first_) turn = with_first_turns(turn, ends);
    for (size_t i = 0; first_ && i < ends.size(); ++i) ends[i] += static_cast<int32_t>(i);
    Layout whole{turn, {ends, device}, {{0}, device}, {}, {}};
    if (parts.empty()) return whole;
    const SeenPatches seen = seen_patches(grids, spec_.merge, parts);
    whole.looked_at = index_tensor(seen.patch, device), whole.keys.emplace(seen.ends, device);
    return whole;
  }
  const Windows windows = windows_of(grids, spec_.merge, spec_.window);
  const int64_t cell = spec_.merge * spec_.merge;
  std::vector<int64_t> order, back(windows.cells.size());
  PatchPlaces ordered;
  for (size_t at = 0; at < windows.cells.size(); ++at) {
    back[static_cast<size_t>(windows.cells[at])] = static_cast<int64_t>(at);
    for (int64_t k = 0; k < cell; ++k) {
      order.push_back(windows.cells[at] * cell + k);
      ordered.row.push_back(places.row[static_cast<size_t>(order.back())]);
      ordered.column.push_back(places.column[static_cast<size_t>(order.back())]);
    }
  }
  // A window stays within its frame, so frames are the same runs in both orders.
  return {patch_turns(ordered, spec_, device),
          {frame_ends(grids), device},
          {windows.ends, device},
          index_tensor(order, device),
          index_tensor(back, device)};
}

at::Tensor VisionTower::by_pixel(const at::Tensor& patch_NP) const {
  return patch_NP.reshape({-1, spec_.channels, spec_.patch, spec_.patch}).permute({0, 2, 3, 1}).reshape_as(patch_NP);
}

// Each patch is read whole: the convolution is one product.
at::Tensor VisionTower::embedded(const at::Tensor& patch_NP, const std::vector<Grid>& grids,
                                 const FrameParts& parts) const {
  if (spec_.reads_rows) return placed(patch_NP, grids, parts);
  const at::Tensor& weight = patches_->weight();
  const auto by_colour = [&] {
    return weight.view({-1, spec_.patch, spec_.patch, spec_.channels}).permute({0, 3, 1, 2});
  };
  const at::Tensor read = spec_.patch_by_pixel && !norm_patches_ ? by_colour() : weight;
  const at::Tensor own_NP = norm_patches_ ? (*norm_patches_)(by_pixel(patch_NP)) : patch_NP;
  at::Tensor x_ND = ops::linear(own_NP, read.reshape({weight.size(0), -1}), patches_->bias());
  if (norm_in_ && spec_.table_behind_norm) x_ND = (*norm_in_)(x_ND);
  if (!positions_ && !first_and_positions_ && !axes_) return x_ND;
  return placed(x_ND, grids, parts);
}

// With learned positions added.
at::Tensor VisionTower::placed(const at::Tensor& x_ND, const std::vector<Grid>& grids, const FrameParts& parts) const {
  if (axes_) {
    for (const Grid& g : grids)
      require(g[1] <= spec_.table_side && g[2] <= spec_.table_side, Fault::Data, "a picture of ", g[1], " x ", g[2],
              " patches: the model knows positions of ", spec_.table_side, " a side");
    const at::Tensor table_2PD = spec_.axes_side_by_side ? axes_->data.transpose(0, 1) : axes_->data;
    return x_ND + rows_of_axes(table_2PD, grids, spec_.merge);
  }
  if (spec_.table_form == TableForm::Nearest) {
    std::vector<Grid> shapes = grids;
    for (Grid& g : shapes)
      if (spec_.table_of_strips) g = {g[0], 1, g[1] * g[2]};
    const at::Tensor entry = parts.empty()
                                 ? nearest_in_table(shapes, spec_.merge, spec_.table_side, spec_.table_in_steps)
                                 : nearest_in_parts(shapes, spec_.merge, spec_.table_side, parts);
    return x_ND + at::index_select(positions_->weight(), 0, entry.to(x_ND.device()));
  }
  if (spec_.table_form == TableForm::Smooth) {
    const bool skips = first_ != nullptr;
    const int64_t side = spec_.table_side;
    return x_ND + smooth_rows(positions_->weight().narrow(0, skips ? 1 : 0, side * side), side, grids);
  }
  const auto read = spec_.table_form == TableForm::Cubic     ? table_cubic
                    : spec_.table_form == TableForm::Linear  ? table_linear
                    : spec_.table_form == TableForm::Covered ? table_covered
                                                             : table_corners;
  const TablePlaces places = read(grids, spec_.merge, spec_.table_side);
  const at::Tensor all = positions_ ? positions_->weight().reshape({-1, spec_.width}) : first_and_positions_->data[0];
  const bool skips = first_ && !spec_.first_ends_table;
  const at::Tensor table = all.narrow(0, (skips ? 1 : 0) + spec_.table_before, spec_.table_side * spec_.table_side);
  at::Tensor sum;
  for (size_t k = 0; k < places.entry.size(); ++k) {
    const at::Tensor share = at::tensor(places.share[k], at::kFloat).to(x_ND.device()).to(x_ND.scalar_type());
    const at::Tensor part =
        at::index_select(table, 0, index_tensor(places.entry[k], x_ND.device())) * share.unsqueeze(1);
    sum = sum.defined() ? sum + part : part;
  }
  return x_ND + sum;
}

at::Tensor VisionTower::with_first_rows(const at::Tensor& x_ND, const std::vector<int32_t>& ends) const {
  at::Tensor first = first_->data.reshape({1, -1});
  if (positions_ || first_and_positions_) {
    const at::Tensor all = positions_ ? positions_->weight() : first_and_positions_->data[0];
    first = first + all.narrow(0, spec_.first_ends_table ? all.size(0) - 1 : 0, 1);
  }
  return with_rows_before(x_ND, first, ends);
}

Turn VisionTower::with_first_turns(const Turn& turn, const std::vector<int32_t>& ends) const {
  const at::Tensor angle = first_angles_ ? first_angles_->data.detach().to(turn.cos.options())
                                         : at::zeros({1, turn.cos.size(1)}, turn.cos.options());
  return {with_rows_before(turn.cos, angle.cos(), ends), with_rows_before(turn.sin, angle.sin(), ends)};
}

at::Tensor VisionTower::Product::operator()(const at::Tensor& x, const Step& s) const {
  if (!limits[0]) return (*linear)(x, s);
  const auto kept = [](const at::Tensor& t, const Param* least, const Param* most) {
    return t.clamp(least->data.to(t.scalar_type()), most->data.to(t.scalar_type()));
  };
  return kept((*linear)(kept(x, limits[0], limits[1]), s), limits[2], limits[3]);
}

// Heads as ops::rope turns them.
at::Tensor VisionTower::turned(const at::Tensor& x_NnH) const {
  if (spec_.turns_neighbours) return neighbours_apart(x_NnH, spec_.head_size());
  if (!spec_.turns_halves) return x_NnH;
  // Both halves of what turns by lines, then of what turns by columns: first halves first.
  const std::vector<at::Tensor> quarter = x_NnH.chunk(4, 2);
  return at::cat({quarter[2], quarter[0], quarter[3], quarter[1]}, 2);
}

at::Tensor VisionTower::attended(const Block& b, const at::Tensor& x_ND, const Layout& l, const Step& s) const {
  const int64_t patches = x_ND.size(0), h = spec_.head_size();
  const std::vector<at::Tensor> qkv =
      b.qkv ? b.qkv(x_ND, s).split_with_sizes({spec_.width, spec_.kv_width(), spec_.kv_width()}, 1)
            : std::vector<at::Tensor>{b.q(x_ND, s), b.k(x_ND, s), b.v(x_ND, s)};
  const auto heads = [&](const at::Tensor& x) { return x.reshape({patches, x.size(1) / h, h}); };
  const auto normed = [&](const Norm* norm, const at::Tensor& x) {
    if (!norm) return heads(x);
    return spec_.qk_norm_of_heads ? (*norm)(heads(x).contiguous()) : heads((*norm)(x.contiguous()));
  };
  at::Tensor q = normed(b.q_norm, qkv[0]), k = normed(b.k_norm, qkv[1]);
  if (spec_.turned) std::tie(q, k) = ops::rope(turned(q), turned(k), l.turn.cos, l.turn.sin);
  at::Tensor v = heads(qkv[2]);
  if (spec_.value_norm) v = rms_alone(v.contiguous(), spec_.norm.eps);
  const Segments &look = b.full ? l.frames : l.windows, &seen = l.keys ? *l.keys : look;
  if (l.keys) k = at::index_select(k, 0, l.looked_at), v = at::index_select(v, 0, l.looked_at);
  const double scale = spec_.score_scale > 0 ? spec_.score_scale : 1 / std::sqrt(static_cast<double>(h));
  const at::Tensor y = ops::attention(q, k, v, look.cu, seen.cu, look.longest, seen.longest,
                                      {.scale = scale, .mask = {.causal = false}});
  return b.proj(y.reshape({patches, -1}), s);
}

// Of each 2 x 2 patches, which see each other: their mean, and what a feed-forward makes of all four.
at::Tensor VisionTower::halved(const at::Tensor& x_ND, const StepOf& step_of) const {
  const Halving& p = *halving_;
  const int64_t n = x_ND.size(0), half = spec_.merge / 2, h = spec_.head_size();
  // Cells line by line, as squares of 2 x 2.
  const at::Tensor square_ND =
      x_ND.reshape({-1, half, 2, half, 2, spec_.width}).transpose(2, 3).reshape({n, spec_.width});
  const Step s = step_of(n);
  const at::Tensor normed_ND = (*p.norm)(square_ND.contiguous());
  const auto heads = [&](const Linear* linear) { return (*linear)(normed_ND, s).reshape({n, spec_.heads, h}); };
  const at::Tensor ends = at::arange(0, n + 1, 4, at::TensorOptions(x_ND.device()).dtype(at::kInt));
  const at::Tensor y = ops::attention(heads(p.q), heads(p.k), heads(p.v), ends, ends, 4, 4,
                                      {.scale = 1 / std::sqrt(static_cast<double>(h)), .mask = {.causal = false}});
  const at::Tensor seen_ND = square_ND + (*p.proj)(y.reshape({n, -1}), s);
  const Step of_squares = step_of(n / 4);
  const at::Tensor cell_MC = (*p.cell_norm)(seen_ND.reshape({n / 4, -1}).contiguous());
  const at::Tensor made = (*p.out)(at::gelu((*p.in)(cell_MC, of_squares), "tanh"), of_squares);
  return made + seen_ND.reshape({n / 4, 4, spec_.width}).mean(1);
}

at::Tensor VisionTower::fed(const Block& b, const at::Tensor& x_ND, const Step& s) const {
  const at::Tensor up = b.up(x_ND, s);
  return b.down(b.gate ? activated(spec_.act, b.gate(x_ND, s)) * up : activated(spec_.act, up), s);
}

// In f32: numbers may be large before their usual size is taken off.
at::Tensor VisionTower::of_means(const at::Tensor& x_MnD) const {
  if (spec_.cell_scale == 1) return x_MnD.mean(1);
  at::Tensor wide_MD = x_MnD.to(x_MnD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).mean(1);
  wide_MD = wide_MD * spec_.cell_scale;
  if (cells_minus_) wide_MD = wide_MD - cells_minus_->data;
  if (cells_times_) wide_MD = wide_MD * cells_times_->data;
  return wide_MD.to(x_MnD.scalar_type());
}

// The rows of neighbours stand one behind the other, and become one.
at::Tensor VisionTower::cells_of(const at::Tensor& x_ND) const {
  if (narrow_) return x_ND;
  const at::Tensor x_MnD = x_ND.reshape({-1, spec_.merged_side() * spec_.merged_side(), spec_.width});
  switch (spec_.cells) {
    case CellForm::Mean:
      return of_means(x_MnD);
    case CellForm::ByNumber:
      return x_MnD.transpose(1, 2).reshape({-1, spec_.cell_width()});
    case CellForm::Joined:
      break;
  }
  return x_MnD.reshape({-1, spec_.cell_width()});
}

at::Tensor VisionTower::gated(const Merger& m, const at::Tensor& x_ND, const StepOf& step_of) const {
  const at::Tensor& weight = cell_maker_->weight();  // [out, D, merge, merge]
  const at::Tensor cell_MC = x_ND.reshape({-1, spec_.merge * spec_.merge, spec_.width}).transpose(1, 2).flatten(1);
  const at::Tensor made_MD = ops::linear(cell_MC, weight.flatten(1), cell_maker_->bias());
  const Step s = step_of(made_MD.size(0));
  const at::Tensor x_MD = at::gelu((*m.norm)((*m.before)(made_MD, s)));
  return (*m.out)(activated(spec_.act, (*m.gate)(x_MD, s)) * (*m.in)(x_MD, s), s);
}

at::Tensor VisionTower::narrowed(const at::Tensor& x_ND, const std::vector<Grid>& grids) const {
  std::vector<at::Tensor> all;
  int64_t first = 0;
  for (const Grid& g : grids) {
    const at::Tensor x_THWD = x_ND.narrow(0, first, patches_of(g)).reshape({g[0], g[1], g[2], spec_.width});
    first += patches_of(g);
    all.push_back(convolved(convolved(x_THWD, *narrow_, 2), *narrower_, 2).flatten(0, 2));
  }
  return at::cat(all, 0);
}

at::Tensor VisionTower::merged(const Merger& m, const at::Tensor& x_ND, const Layout& l, const StepOf& step_of) const {
  if (cell_maker_) return gated(m, x_ND, step_of);
  if (!m.in && !m.matrix) return x_ND;
  at::Tensor x_MC = cells_of(m.norm && m.norm_first ? (*m.norm)(x_ND) : x_ND);
  if (m.norm && !m.norm_first) x_MC = (*m.norm)(x_MC);
  const Step s = step_of(x_MC.size(0));
  if (m.cells) x_MC = (*m.cells)(x_MC, s);
  at::Tensor y_MD = m.matrix ? at::matmul(x_MC, m.matrix->data) : (*m.in)(x_MC, s);
  if (m.out) y_MD = (*m.out)(at::gelu(y_MD), s);
  if (m.end) y_MD = (*m.end)(at::gelu(y_MD), s);
  return l.cell_back.defined() ? at::index_select(y_MD, 0, l.cell_back) : y_MD;
}

// Each cell is some share of every word.
at::Tensor VisionTower::in_words(const at::Tensor& x_ND, const Layout& l, const StepOf& step_of) const {
  at::Tensor x_MC = x_ND.reshape({-1, spec_.cell_width()});
  if (l.cell_back.defined()) x_MC = at::index_select(x_MC, 0, l.cell_back);
  const at::Tensor score_MW = (*merger_.norm)((*merger_.in)(x_MC, step_of(x_MC.size(0))));
  const at::Tensor share_MW = at::softmax(score_MW, 1, at::kFloat).to(x_ND.scalar_type());
  return at::matmul(share_MW, words_->weight().narrow(0, 0, share_MW.size(1)));
}

at::Tensor VisionTower::marks(const at::Tensor& mark_M) const {
  return at::index_select(words_->weight(), 0, mark_M + (spec_.words - spec_.marks()));
}

at::Tensor VisionTower::through(const Block& b, at::Tensor x_ND, const Layout& l, const Step& s) const {
  const auto ended = [](const at::Tensor& y, const Norm* norm, const Param* scale) {
    const at::Tensor normed = norm ? (*norm)(y) : y;
    return scale ? normed * scale->data : normed;
  };
  x_ND = x_ND + ended(attended(b, (*b.norm1)(x_ND), l, s), b.after_attention, b.scale1);
  return x_ND + ended(fed(b, (*b.norm2)(x_ND), s), b.after_feed_forward, b.scale2);
}

Sight VisionTower::operator()(const at::Tensor& patch_NP, const std::vector<Grid>& grids, const StepOf& step_of,
                              bool again, const std::vector<bool>& pooled, const FrameParts& parts) const {
  // Shared with layers that run again when this has returned.
  const auto whole = std::make_shared<const Layout>(layout(grids, patch_NP.device(), parts));
  const Layout& l = *whole;
  at::Tensor x_ND = embedded(patch_NP, grids, parts);
  if (l.patch_order.defined()) x_ND = at::index_select(x_ND, 0, l.patch_order);
  const std::vector<int32_t> ends = frame_ends(grids);
  if (first_) x_ND = with_first_rows(x_ND, ends);
  if (norm_in_ && !spec_.table_behind_norm) x_ND = (*norm_in_)(x_ND);
  auto shared = whole;
  Step s = step_of(x_ND.size(0));
  Sight sight;
  sight.late_MD.resize(deep_mergers_.size());
  std::vector<at::Tensor> taken_ND(spec_.taken_layers.size());
  for (const Block& b : blocks_) {
    const RunPart part = [this, &b, shared](const at::Tensor& x, const Step& own) {
      return through(b, x, *shared, own);
    };
    x_ND = again ? run_again(x_ND, s, Memo::kNothing, part) : part(x_ND, s);
    if (halving_ && &b == &blocks_[static_cast<size_t>(spec_.halved_behind)]) {
      x_ND = halved(x_ND, step_of), s = step_of(x_ND.size(0));
      std::vector<int32_t> ends = frame_ends(grids);
      for (int32_t& end : ends) end /= 4;
      shared = std::make_shared<const Layout>(
          Layout{Turn(), {ends, x_ND.device()}, {{0}, x_ND.device()}, at::Tensor(), at::Tensor()});
    }
    for (size_t t = 0; t < taken_ND.size(); ++t)
      if (spec_.taken_layers[t] == &b - blocks_.data()) taken_ND[t] = x_ND;
    if (b.deep >= 0)
      sight.late_MD[static_cast<size_t>(b.deep)] = merged(deep_mergers_[static_cast<size_t>(b.deep)], x_ND, l, step_of);
  }
  if (!taken_ND.empty()) x_ND = at::cat(taken_ND, 1);
  if (first_) x_ND = without_rows_before(x_ND, ends);
  if (norm_out_) x_ND = (*norm_out_)(x_ND);
  if (!pooled.empty()) x_ND = pooled_rows(x_ND, grids, pooled);
  if (line_end_) {
    const auto as_patches = [&](const Param* cell) {
      const at::Tensor row_ND = cell->data.reshape({-1, spec_.width});  // one, of a mean
      return row_ND.expand({spec_.merge * spec_.merge, spec_.width});
    };
    x_ND = at::cat({x_ND, as_patches(line_end_), as_patches(between_)}, 0);
  }
  if (narrow_) x_ND = narrowed(x_ND, grids);
  if (spec_.join > 1) x_ND = joined_squares(x_ND, grids, spec_.join).reshape({-1, spec_.width});
  sight.row_MD = resampler_ ? (*resampler_)(x_ND, grids, step_of)
                 : lines_   ? (*lines_)(x_ND, grids, step_of)
                 : pairs_   ? (*pairs_)(x_ND, grids, step_of)
                 : words_   ? in_words(x_ND, l, step_of)
                            : merged(merger_, x_ND, l, step_of);
  return sight;
}

}  // namespace apus
