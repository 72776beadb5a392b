// SPDX-License-Identifier: Apache-2.0
// Shapes: B pictures (or windows), N patches of all, W patches a side of what sees itself, D width, n heads of size H.
#include "models/towers/sam_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/upsample_linear1d.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "models/towers/convolution.h"
#include "models/towers/patch_rows.h"
#include "nn/run_again.h"
#include "ops/ops.h"

namespace apus {

SamTower::SamTower(const SamSpec& spec, const TowerParts& parts) : spec_(spec) {
  const auto name = [&](const std::string& part) { return spec.name + "." + part; };
  const SamNames& n = spec.names;
  patches_ = &parts.table(name(n.patches));
  if (spec.positions) positions_ = &parts.bare(name(n.table));
  for (int64_t i = 0; i < spec.layers; ++i) {
    const auto own = [&](const std::string& part) { return name(str(n.blocks, ".", i, ".", part)); };
    const auto bare = [&](const char* part) { return spec.relative ? &parts.bare(own(part)) : nullptr; };
    blocks_.push_back({.norm1 = &parts.norm(own(n.norm1)),
                       .norm2 = &parts.norm(own(n.norm2)),
                       .qkv = &parts.linear(own("attn.qkv")),
                       .proj = &parts.linear(own("attn.proj")),
                       .up = &parts.linear(own("mlp.lin1")),
                       .down = &parts.linear(own("mlp.lin2")),
                       .of_lines = bare("attn.rel_pos_h"),
                       .of_columns = bare("attn.rel_pos_w"),
                       .window = spec.sees_all(i) ? 0 : spec.window});
  }
  neck_ = &parts.table(name(n.neck)), neck_norm_ = &parts.norm(name(n.neck_norm));
  neck_wide_ = &parts.table(name(n.neck_wide)), neck_end_ = &parts.norm(name(n.neck_end));
  narrow_ = &parts.table(n.narrow), narrower_ = &parts.table(n.narrower);
}

at::Tensor SamTower::placed(const at::Tensor& x_BHWD) const {
  if (!positions_) return x_BHWD;
  const int64_t side = x_BHWD.size(1);
  const at::Tensor table = positions_->data.reshape({-1, spec_.width});
  return x_BHWD + smooth_rows(table, spec_.side, {{1, side, side}}).reshape({1, side, side, spec_.width});
}

namespace {
// [W, W, H]: what is learnt of how far query and key lie apart along one axis. The table has 2 x its own side - 1 rows.
at::Tensor by_distance(const at::Tensor& table_LH, int64_t w) {
  at::Tensor rows = table_LH;
  if (rows.size(0) != 2 * w - 1)
    rows = at::upsample_linear1d(rows.t().unsqueeze(0), {2 * w - 1}, /*align_corners=*/false).squeeze(0).t();
  const at::Tensor place = at::arange(w, at::TensorOptions(rows.device()).dtype(at::kLong));
  const at::Tensor apart = place.unsqueeze(1) - place.unsqueeze(0) + (w - 1);
  return rows.index_select(0, apart.flatten()).reshape({w, w, -1});
}

// [B, H, W, C] -> [B', window, window, C]; `filler` [C] stands beyond the edges.
at::Tensor in_windows(at::Tensor x, int64_t window, const at::Tensor& filler) {
  for (const int64_t axis : {1, 2}) {
    const int64_t more = (window - x.size(axis) % window) % window;
    if (more == 0) continue;
    std::vector<int64_t> shape = x.sizes().vec();
    shape[static_cast<size_t>(axis)] = more;
    x = at::cat({x, filler.expand(shape)}, axis);
  }
  const int64_t rows = x.size(1) / window, columns = x.size(2) / window;
  return x.reshape({x.size(0), rows, window, columns, window, -1})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, window, window, x.size(3)});
}

at::Tensor out_of_windows(const at::Tensor& x, int64_t side) {
  const int64_t window = x.size(1), across = (side + window - 1) / window;
  return x.reshape({-1, across, across, window, window, x.size(3)})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({-1, across * window, across * window, x.size(3)})
      .narrow(1, 0, side)
      .narrow(2, 0, side);
}
}  // namespace

// What is added to a score for the distance of query and key is a product too: of what the query says of each line and
// each column, and of ones where the key stands. So it is attention over longer heads.
at::Tensor SamTower::attended(const Block& b, const at::Tensor& x_BHWD, const Step& s) const {
  const int64_t side = x_BHWD.size(1), n = spec_.heads, h = spec_.head_size();
  const at::Tensor rows = (*b.qkv)(x_BHWD.reshape({-1, spec_.width}), s);
  at::Tensor qkv = rows.reshape({x_BHWD.size(0), side, side, 3 * spec_.width});
  const bool cut = b.window > 0;
  if (cut) {
    const Param* const bias = const_cast<Linear*>(b.qkv)->bias();
    const at::Tensor filler = bias ? bias->data.to(qkv.scalar_type()) : at::zeros({3 * spec_.width}, qkv.options());
    qkv = in_windows(qkv, b.window, filler);
  }
  const int64_t w = qkv.size(1), windows = qkv.size(0), count = windows * w * w;
  const std::vector<at::Tensor> each = qkv.reshape({windows, w, w, 3, n, h}).unbind(3);
  at::Tensor q = each[0] * (1 / std::sqrt(static_cast<double>(h))), k = each[1];
  if (b.of_lines) {
    const auto said = [&](const char* how, const Param* table) {
      return at::einsum(how, {each[0], by_distance(table->data, w).to(q.scalar_type())});
    };
    const at::Tensor one = at::eye(w, q.options());
    const at::Tensor line = one.reshape({1, w, 1, 1, w}).expand({windows, w, w, n, w}),
                     column = one.reshape({1, 1, w, 1, w}).expand({windows, w, w, n, w});
    q = at::cat({q, said("bijnc,ikc->bijnk", b.of_lines), said("bijnc,jkc->bijnk", b.of_columns)}, 4);
    k = at::cat({k, line, column}, 4);
  }
  const at::Tensor ends = at::arange(0, count + 1, w * w, at::TensorOptions(q.device()).dtype(at::kInt));
  const auto heads = [&](const at::Tensor& t) { return t.reshape({count, n, t.size(4)}); };
  at::Tensor y = ops::attention(heads(q), heads(k), heads(each[2]), ends, ends, w * w, w * w,
                                {.scale = 1, .mask = {.causal = false}});
  y = y.reshape({windows, w, w, spec_.width});
  if (cut) y = out_of_windows(y, side);
  return (*b.proj)(y.reshape({-1, spec_.width}), s).reshape(x_BHWD.sizes());
}

at::Tensor SamTower::through(const Block& b, const at::Tensor& x_BHWD, const Step& s) const {
  const at::Tensor seen = x_BHWD + attended(b, (*b.norm1)(x_BHWD), s);
  const at::Tensor up = (*b.up)((*b.norm2)(seen).reshape({-1, spec_.width}), s);
  return seen + (*b.down)(at::gelu(up), s).reshape(seen.sizes());
}

at::Tensor SamTower::operator()(const at::Tensor& patch_NP, int64_t side, const StepOf& step_of, bool again) const {
  const at::Tensor& weight = patches_->weight();
  const at::Tensor read = ops::linear(patch_NP, weight.reshape({weight.size(0), -1}), patches_->bias());
  at::Tensor x = placed(read.reshape({-1, side, side, spec_.width}));
  const Step s = step_of(patch_NP.size(0));
  for (const Block& b : blocks_) {
    const RunPart part = [this, &b](const at::Tensor& in, const Step& own) { return through(b, in, own); };
    x = again ? run_again(x, s, Memo::kNothing, part) : part(x, s);
  }
  x = (*neck_norm_)(convolved(x, *neck_, 1));
  x = (*neck_end_)(convolved(x, *neck_wide_, 1));
  return convolved(convolved(x, *narrow_, 2), *narrower_, 2);
}

}  // namespace apus
