// SPDX-License-Identifier: Apache-2.0
// Shapes: M bands, F frames, T rows of a sound, C channels, D width, N heads, H numbers of a head.
#include "models/towers/cascade_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "models/towers/convolution.h"
#include "nn/run_again.h"
#include "nn/state_layer.h"
#include "ops/ops.h"

namespace apus {

CascadeTower::CascadeTower(const CascadeSpec& spec, const TowerParts& parts) : spec_(spec) {
  const auto own = [&](const std::string& part) { return spec.tower() + "." + part; };
  mean_ = &parts.bare(own("encoder_embedding.global_mean")),
  times_ = &parts.bare(own("encoder_embedding.global_invstd"));
  first_ = &parts.table(own("embed.conv.0"));
  for (int64_t i = 1; i < spec.halvings; ++i)
    further_.push_back(
        {&parts.table(own(str("embed.conv.", 3 * i - 1))), &parts.table(own(str("embed.conv.", 3 * i)))});
  join_ = &parts.linear(own("embed.out"));
  distances_ = &parts.table(own("relative_attention_bias_layer.bias_values"));
  for (int64_t i = 0; i < spec.layers; ++i) {
    const auto of = [&](const char* part) { return own(str("encoders.", i, ".", part)); };
    const auto linear = [&](const char* part) { return &parts.linear(of(part)); };
    const auto norm = [&](const char* part) { return &parts.norm(of(part)); };
    const auto table = [&](const char* part) { return &parts.table(of(part)); };
    layers_.push_back({.first = {norm("feed_forward_in.layer_norm"), linear("feed_forward_in.gate_up_proj"),
                                 linear("feed_forward_in.down_proj")},
                       .last = {norm("feed_forward_out.layer_norm"), linear("feed_forward_out.gate_up_proj"),
                                linear("feed_forward_out.down_proj")},
                       .before_attention = norm("layer_norm_att"),
                       .before_taps = norm("conv.layer_norm"),
                       .norm = norm("layer_norm"),
                       .q = linear("self_attn.q_proj"),
                       .k = linear("self_attn.k_proj"),
                       .v = linear("self_attn.v_proj"),
                       .out = linear("self_attn.o_proj"),
                       .in_taps = table("conv.glu.ext_pw_conv_1d"),
                       .taps = table("conv.dw_sep_conv_1d.dw_conv"),
                       .behind_taps = table("conv.dw_sep_conv_1d.pw_conv"),
                       .out_taps = table("conv.ext_pw_conv_1d"),
                       .added = &parts.bare(of("conv.glu.b1")),
                       .gate_added = &parts.bare(of("conv.glu.b2"))});
  }
  for (const bool beside : {false, true})
    for (const bool second : {false, true})
      projections_[beside][second] = &parts.linear(spec.projection(beside, second));
}

at::Tensor CascadeTower::front(const at::Tensor& sound_MF, const StepOf& step_of) const {
  const auto like = [&](const Param* p) { return p->data.to(sound_MF.scalar_type()); };
  const at::Tensor frame_FM = (sound_MF.t() - like(mean_)) * like(times_);
  at::Tensor x = at::relu(convolved(frame_FM.unsqueeze(0).unsqueeze(3), *first_, 2));
  const Sweep halved{.top = 1, .bottom = 1, .left = 1, .right = 1, .down = 2, .across = 2};
  for (const auto& [apart, together] : further_)
    x = at::relu(convolved(convolved_apart(x, apart->weight(), halved) + apart->bias(), *together, 1));
  // Of each moment all channels, of each channel all bands.
  const at::Tensor row_TC = x.squeeze(0).transpose(1, 2).flatten(1);
  return (*join_)(row_TC, step_of(row_TC.size(0)));
}

// Of each head what is added to the score of a row for another, by how far that lies behind it.
at::Tensor CascadeTower::distances(int64_t rows) const {
  const at::Tensor& table = distances_->weight();
  const at::Tensor place_T = at::arange(rows, at::TensorOptions(table.device()).dtype(at::kLong));
  const at::Tensor far_TT = (place_T.unsqueeze(0) - place_T.unsqueeze(1)).clamp(-spec_.reach, spec_.reach - 1);
  return at::index_select(table, 0, far_TT.flatten() + spec_.reach).reshape({rows, rows, -1}).permute({2, 0, 1});
}

at::Tensor CascadeTower::fed(const FeedForwardPart& part, const at::Tensor& x_TD, const Step& s) const {
  const std::vector<at::Tensor> up = (*part.up)((*part.norm)(x_TD), s).chunk(2, -1);
  return x_TD + (*part.down)(up[0] * at::silu(up[1]), s) * 0.5;
}

at::Tensor CascadeTower::attended(const Layer& l, const at::Tensor& x_TD, const at::Tensor& far_NTT,
                                  const Step& s) const {
  const int64_t rows = x_TD.size(0), h = spec_.head_size();
  const at::Tensor read_TD = (*l.before_attention)(x_TD);
  const auto heads = [&](const Linear* made) {
    return (*made)(read_TD, s).reshape({rows, spec_.heads, h}).transpose(0, 1);
  };
  const at::Tensor score_NTT =
      at::matmul(heads(l.q), heads(l.k).transpose(1, 2)) * (1 / std::sqrt(static_cast<double>(h))) + far_NTT;
  const at::Tensor share_NTT = at::softmax(widened(score_NTT), -1).to(x_TD.scalar_type());
  return x_TD + (*l.out)(at::matmul(share_NTT, heads(l.v)).transpose(0, 1).reshape({rows, -1}), s);
}

at::Tensor CascadeTower::tapped(const Layer& l, const at::Tensor& x_TD) const {
  const auto at_one_place = [](const at::Tensor& x, const Table* table) {
    return ops::linear(x, table->weight().flatten(1), table->bias());
  };
  const std::vector<at::Tensor> parts = at_one_place((*l.before_taps)(x_TD), l.in_taps).chunk(2, -1);
  const at::Tensor open_TD = (parts[0] + l.added->data.flatten()) * at::silu(parts[1] + l.gate_added->data.flatten());
  const at::Tensor met =
      convolved_apart(open_TD.unsqueeze(0).unsqueeze(0), l.taps->weight().unsqueeze(2), {.left = spec_.taps - 1});
  const at::Tensor y_TD = at_one_place(met.squeeze(0).squeeze(0) + l.taps->bias(), l.behind_taps);
  return x_TD + at_one_place(at::silu(y_TD), l.out_taps);
}

// No more rows than are looked at together.
at::Tensor CascadeTower::heard(const at::Tensor& x_TD, const StepOf& step_of, bool again) const {
  const Step s = step_of(x_TD.size(0));
  at::Tensor y_TD = x_TD;
  const at::Tensor far = again ? at::Tensor() : distances(x_TD.size(0));
  for (const Layer& l : layers_) {
    const RunPart part = [this, &l, far](const at::Tensor& x, const Step& own) {
      const at::Tensor far_NTT = far.defined() ? far : distances(x.size(0));
      const at::Tensor seen = attended(l, fed(l.first, x, own), far_NTT, own);
      return (*l.norm)(fed(l.last, tapped(l, seen), own));
    };
    y_TD = again ? run_again(y_TD, s, Memo::kNothing, part) : part(y_TD, s);
  }
  return y_TD;
}

at::Tensor CascadeTower::projected(const at::Tensor& x_TD, bool beside_pictures, const StepOf& step_of) const {
  const auto& [first, second] = projections_[beside_pictures];
  const Step s = step_of(x_TD.size(0));
  return (*second)(at::gelu((*first)(x_TD, s)), s);
}

at::Tensor CascadeTower::operator()(const std::vector<at::Tensor>& sounds_MF, const StepOf& step_of, bool again,
                                    bool beside_pictures) const {
  constexpr int64_t kMost = CascadeSpec::kRowsAtOnce;
  std::vector<at::Tensor> all;
  for (const at::Tensor& sound_MF : sounds_MF) {
    const at::Tensor x_TD = front(sound_MF, step_of);
    const int64_t rows = x_TD.size(0);
    for (int64_t first = 0; first < rows; first += kMost) {
      const int64_t own = std::min(kMost, rows - first);
      const at::Tensor part_TD = x_TD.narrow(0, first, own);
      all.push_back(
          rows <= kMost
              ? heard(part_TD, step_of, again)
              : heard(at::constant_pad_nd(part_TD, {0, 0, 0, kMost - own}), step_of, again).narrow(0, 0, own));
    }
  }
  const at::Tensor x_TD = at::cat(all, 0);
  at::Tensor row_TD = projected(x_TD, beside_pictures, step_of);
  // The other projection meets the backward pass too: ranks that sum gradients wait for each other.
  if (at::GradMode::is_enabled())
    row_TD = row_TD + projected(x_TD.narrow(0, 0, 1), !beside_pictures, step_of).sum() * 0;
  return row_TD;
}

}  // namespace apus
