// SPDX-License-Identifier: Apache-2.0
// Shapes: B pictures, H x W places, C channels.
#include "models/towers/mobile_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>

#include <cmath>

#include "models/towers/convolution.h"
#include "nn/run_again.h"
#include "ops/ops.h"

namespace apus {

MobileTower::Block MobileTower::block(const MobileBlock& form, const std::string& name, const TowerParts& parts) const {
  Block b{.form = form};
  const auto table = [&](const char* part) { return &parts.table(name + part); };
  const auto norm = [&](const char* part) { return &parts.norm(name + part); };
  const auto with_norm = [&](const char* part) {
    return Part{table(str(part, ".conv").c_str()), norm(str(part, ".bn").c_str())};
  };
  if (form.kind == MobileBlock::Kind::Edge) {
    b.wider = {table("conv_exp"), norm("bn1")}, b.narrower = {table("conv_pwl"), norm("bn2")};
    return b;
  }
  b.scale = &parts.bare(name + "layer_scale.gamma");
  if (form.kind == MobileBlock::Kind::Inverted) {
    if (form.before > 0) b.before = with_norm("dw_start");
    b.wider = with_norm("pw_exp");
    if (form.among > 0) b.among = with_norm("dw_mid");
    b.narrower = with_norm("pw_proj");
    if (form.behind > 0) b.behind = with_norm("dw_end");
    return b;
  }
  const bool narrow = form.key_step > 1;
  b.norm = norm("norm"), b.query = table("attn.query.proj"), b.out = table("attn.output.proj");
  if (narrow) b.keys.narrow = {table("attn.key.down_conv"), norm("attn.key.norm")};
  if (narrow) b.values.narrow = {table("attn.value.down_conv"), norm("attn.value.norm")};
  b.keys.matrix = table("attn.key.proj"), b.values.matrix = table("attn.value.proj");
  return b;
}

MobileTower::MobileTower(const MobileSpec& spec, const TowerParts& parts)
    : spec_(spec), embedder_(spec.embedder, parts) {
  const auto own = [&](const std::string& part) { return spec.name + "." + part; };
  const auto with_norm = [&](const std::string& part) {
    return Part{&parts.table(own(part + ".conv")), &parts.norm(own(part + ".bn"))};
  };
  stem_ = with_norm("conv_stem");
  for (size_t i = 0; i < spec.stages.size(); ++i) {
    stages_.emplace_back();
    for (size_t k = 0; k < spec.stages[i].size(); ++k)
      stages_.back().push_back(block(spec.stages[i][k], own(str("blocks.", i, ".", k, ".")), parts));
  }
  fused_wider_ = with_norm("msfa.ffn.pw_exp"), fused_narrower_ = with_norm("msfa.ffn.pw_proj");
  norm_ = &parts.norm(own("msfa.norm"));
}

namespace {
at::Tensor bent(const at::Tensor& x_BHWC) {
  // As rows: libtorch's gelu loses gradients of other shapes.
  return at::gelu(x_BHWC.flatten(0, 2).contiguous(), "tanh").reshape(x_BHWC.sizes());
}
at::Tensor swept(const at::Tensor& x_BHWC, const Table& table, int64_t step) {
  const at::Tensor& weight = table.weight();
  return convolved(x_BHWC, weight, table.bias(), even_sweep(x_BHWC.size(1), x_BHWC.size(2), weight.size(2), step));
}
at::Tensor swept_apart(const at::Tensor& x_BHWC, const Table& table, int64_t step) {
  const at::Tensor& weight = table.weight();
  return convolved_apart(x_BHWC, weight, even_sweep(x_BHWC.size(1), x_BHWC.size(2), weight.size(2), step));
}
// Each place for itself.
at::Tensor mixed(const at::Tensor& x_BHWC, const Table& table) {
  const at::Tensor y = ops::linear(x_BHWC.reshape({-1, x_BHWC.size(3)}), table.weight().flatten(1), {});
  return y.reshape({x_BHWC.size(0), x_BHWC.size(1), x_BHWC.size(2), -1});
}
}  // namespace

at::Tensor MobileTower::attended(const Block& b, const at::Tensor& x_BHWC) const {
  const MobileBlock& form = b.form;
  const at::Tensor read = (*b.norm)(x_BHWC);
  const auto seen = [&](const Keys& keys, int64_t size) {
    const at::Tensor narrow =
        keys.narrow.weight ? (*keys.narrow.norm)(swept_apart(read, *keys.narrow.weight, form.key_step)) : read;
    return mixed(narrow, *keys.matrix).reshape({-1, 1, size});
  };
  const at::Tensor q = mixed(read, *b.query).reshape({-1, form.heads, form.key});
  const at::Tensor k = seen(b.keys, form.key), v = seen(b.values, form.value);
  const int64_t pictures = x_BHWC.size(0), each_q = q.size(0) / pictures, each_k = k.size(0) / pictures;
  const auto ends = [&](int64_t each) {
    return at::arange(pictures + 1, at::TensorOptions(q.device()).dtype(at::kInt)) * static_cast<int>(each);
  };
  const at::Tensor y =
      ops::attention(q, k, v, ends(each_q), ends(each_k), each_q, each_k,
                     {.scale = 1 / std::sqrt(static_cast<double>(form.key)), .mask = {.causal = false}});
  const at::Tensor rows = y.reshape({pictures, x_BHWC.size(1), x_BHWC.size(2), -1});
  return mixed(rows, *b.out);
}

at::Tensor MobileTower::through(const Block& b, const at::Tensor& x_BHWC) const {
  const MobileBlock& form = b.form;
  at::Tensor y = x_BHWC;
  if (form.kind == MobileBlock::Kind::Attention) {
    y = attended(b, x_BHWC);
  } else if (form.kind == MobileBlock::Kind::Edge) {
    y = bent((*b.wider.norm)(swept(x_BHWC, *b.wider.weight, form.step)));
    y = (*b.narrower.norm)(mixed(y, *b.narrower.weight));
  } else {
    // The step is taken by the convolution among more channels, or else by the one before, or the one behind.
    const int64_t before = form.among > 0 ? 1 : form.step, behind = form.among + form.before > 0 ? 1 : form.step;
    if (b.before.weight) y = (*b.before.norm)(swept_apart(y, *b.before.weight, before));
    y = bent((*b.wider.norm)(mixed(y, *b.wider.weight)));
    if (b.among.weight) y = bent((*b.among.norm)(swept_apart(y, *b.among.weight, form.step)));
    y = (*b.narrower.norm)(mixed(y, *b.narrower.weight));
    if (b.behind.weight) y = (*b.behind.norm)(swept_apart(y, *b.behind.weight, behind));
  }
  if (b.scale) y = y * b.scale->data;
  return form.added() ? x_BHWC + y : y;
}

namespace {
// The nearest of the coarser places, for so many.
at::Tensor spread_to(const at::Tensor& x, int64_t dim, int64_t size) {
  const int64_t own = x.size(dim);
  if (own == size) return x;
  const at::Tensor place = at::arange(size, at::TensorOptions(x.device()).dtype(at::kLong));
  return at::index_select(x, dim, (place * own).div(size, "floor"));
}
}  // namespace

at::Tensor MobileTower::fused(const at::Tensor& finer, const at::Tensor& coarser) const {
  const int64_t high = finer.size(1), wide = finer.size(2), side = spec_.side;
  const at::Tensor both = at::cat({finer, spread_to(spread_to(coarser, 1, high), 2, wide)}, 3);
  const at::Tensor up = bent((*fused_wider_.norm)(mixed(both, *fused_wider_.weight)));
  const at::Tensor y = (*fused_narrower_.norm)(mixed(up, *fused_narrower_.weight));
  const at::Tensor cells = y.view({y.size(0), side, high / side, side, wide / side, y.size(3)});
  return (*norm_)(cells.mean({2, 4}));
}

at::Tensor MobileTower::operator()(const std::vector<at::Tensor>& pictures, const StepOf& step_of, bool again) const {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& picture : pictures) {
    const at::Tensor planes = picture.permute({0, 2, 3, 1}).contiguous();
    at::Tensor x = bent((*stem_.norm)(swept(planes, *stem_.weight, 2))), finer;
    for (size_t i = 0; i < stages_.size(); ++i) {
      finer = x;
      for (const Block& b : stages_[i]) {
        const RunPart part = [this, &b](const at::Tensor& y, const Step&) { return through(b, y); };
        x = again ? run_again(x, Step{}, Memo::kNothing, part) : part(x, Step{});
      }
    }
    rows.push_back(fused(finer, x).reshape({-1, spec_.width}) * std::sqrt(static_cast<double>(spec_.width)));
  }
  const at::Tensor all = at::cat(rows, 0);
  return embedder_.of_rows(all, step_of(all.size(0)));
}

}  // namespace apus
