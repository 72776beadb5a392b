// SPDX-License-Identifier: Apache-2.0
// Shapes: M bands, F frames, T rows of a sound, C channels, D width, N heads, H numbers of a head, R rows that a row
// looks at.
#include "models/towers/conformer_tower.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

#include "models/towers/convolution.h"
#include "nn/run_again.h"
#include "nn/state_layer.h"

namespace apus {

ConformerTower::ConformerTower(const ConformerSpec& spec, const TowerParts& parts)
    : spec_(spec), embedder_(spec.embedder, parts) {
  const auto own = [&](const std::string& part) { return spec.name + "." + part; };
  for (const char* each : {"subsample_conv_projection.conv_0.", "subsample_conv_projection.conv_1."})
    convolutions_.push_back({&parts.table(own(str(each, "conv"))), &parts.table(own(str(each, "norm")))});
  join_ = &parts.linear(own("subsample_conv_projection.input_proj_linear"));
  for (int64_t i = 0; i < spec.layers; ++i) {
    const auto of = [&](const char* part) { return own(str("conformer.", i, ".", part)); };
    const auto linear = [&](const char* part) { return &parts.linear(of(part)); };
    const auto norm = [&](const char* part) { return &parts.norm(of(part)); };
    layers_.push_back({.first = {norm("ffw_layer_start.pre_layer_norm"), norm("ffw_layer_start.post_layer_norm"),
                                 linear("ffw_layer_start.ffw_layer_1"), linear("ffw_layer_start.ffw_layer_2")},
                       .last = {norm("ffw_layer_end.pre_layer_norm"), norm("ffw_layer_end.post_layer_norm"),
                                linear("ffw_layer_end.ffw_layer_1"), linear("ffw_layer_end.ffw_layer_2")},
                       .before_attention = norm("attention.pre_attn_norm"),
                       .behind_attention = norm("attention.post_norm"),
                       .q = linear("attention.attn.q_proj"),
                       .k = linear("attention.attn.k_proj"),
                       .v = linear("attention.attn.v_proj"),
                       .place = linear("attention.attn.relative_position_embedding.pos_proj"),
                       .out = linear("attention.post"),
                       .scale = &parts.bare(of("attention.attn.per_dim_scale")),
                       .before_taps = norm("lconv1d.pre_layer_norm"),
                       .behind_taps = norm("lconv1d.conv_norm"),
                       .norm = norm("norm"),
                       .in_taps = linear("lconv1d.linear_start"),
                       .out_taps = linear("lconv1d.linear_end"),
                       .taps = &parts.table(of("lconv1d.depthwise_conv1d"))});
  }
}

at::Tensor ConformerTower::bounded(const at::Tensor& x) const {
  constexpr double kLargestHalf = 65504;
  const double bound = x.scalar_type() == at::kHalf ? std::min(spec_.bound, kLargestHalf) : spec_.bound;
  return x.clamp(-bound, bound);
}

namespace {
// Of [1, T, bands, C] each moment by mean and deviation of all up to it; deviations are from each one's own mean.
at::Tensor normed_so_far(const at::Tensor& x, const at::Tensor& weight_C, double eps) {
  const at::Tensor wide = widened(x);
  const double numbers = static_cast<double>(x.size(2) * x.size(3));
  const at::Tensor count_T11 = at::arange(1, x.size(1) + 1, wide.options()).view({-1, 1, 1}) * numbers;
  const auto mean_so_far = [&](const at::Tensor& each) {
    return at::cumsum(each.sum({2, 3}, /*keepdim=*/true), 1) / count_T11;
  };
  const at::Tensor off = wide - mean_so_far(wide);
  return (off * (mean_so_far(off.square()) + eps).rsqrt() * widened(weight_C)).to(x.scalar_type());
}
}  // namespace

at::Tensor ConformerTower::front(const at::Tensor& sound_MF, const StepOf& step_of) const {
  at::Tensor x = sound_MF.t().unsqueeze(0).unsqueeze(3);  // [1, F, M, 1]
  for (size_t i = 0; i < convolutions_.size(); ++i) {
    const Sweep sweep{
        .bottom = spec_.sides[i][0] - 1, .left = 1, .right = 1, .down = spec_.steps[i][0], .across = spec_.steps[i][1]};
    const at::Tensor y = convolved(x, convolutions_[i].weight->weight(), {}, sweep);
    x = at::relu(normed_so_far(y, convolutions_[i].norm->weight(), spec_.group_eps));
  }
  const at::Tensor rows = x.squeeze(0).flatten(1);  // of each moment all bands, of each band all channels
  return (*join_)(rows, step_of(rows.size(0)));
}

at::Tensor ConformerTower::fed(const FeedForwardPart& part, const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor up = at::silu((*part.up)((*part.before)(bounded(x_TD)), s));
  return x_TD + (*part.behind)(bounded((*part.down)(up, s))) * spec_.added;
}

namespace {
// Of each row the R around it, [T, R, ...]: so many before it, itself, and those behind it; zeros beyond the ends.
at::Tensor around(const at::Tensor& x, int64_t before, int64_t behind) {
  std::vector<int64_t> zeros(static_cast<size_t>(2 * x.dim()), 0);
  zeros[zeros.size() - 2] = before, zeros[zeros.size() - 1] = behind;
  const at::Tensor padded = at::constant_pad_nd(x, zeros);
  std::vector<at::Tensor> all;
  for (int64_t i = 0; i <= before + behind; ++i) all.push_back(padded.narrow(0, i, x.size(0)));
  return at::stack(all, 1);
}

// Sines of so many distances before a row, and cosines: [R, D].
at::Tensor waves(int64_t before, int64_t behind, int64_t width, const at::Tensor& like) {
  const at::TensorOptions wide = at::TensorOptions(like.device()).dtype(at::kFloat);
  const int64_t half = width / 2;
  const double slower = -std::log(1e4) / static_cast<double>(std::max<int64_t>(half - 1, 1));
  const at::Tensor distance_R1 = at::arange(before, -behind - 1, -1, wide).unsqueeze(1);
  const at::Tensor angle = distance_R1 * (at::arange(half, wide) * slower).exp();
  return at::cat({angle.sin(), angle.cos()}, 1).to(like.scalar_type());
}
}  // namespace

at::Tensor ConformerTower::attended(const Layer& l, const at::Tensor& x_TD, const Step& s) const {
  const int64_t rows = x_TD.size(0), n = spec_.heads, h = spec_.head_size();
  const at::Tensor read_TD = (*l.before_attention)(bounded(x_TD));
  const auto heads = [&](const at::Tensor& made) { return made.reshape({made.size(0), n, h}); };
  const double narrowed = 1 / (std::sqrt(static_cast<double>(h)) * std::log(2.0));
  const at::Tensor q_TNH = heads((*l.q)(read_TD, s)) * narrowed * at::softplus(l.scale->data);
  const at::Tensor k_TRNH = around(heads((*l.k)(read_TD, s)), spec_.before, spec_.behind);
  const at::Tensor v_TRNH = around(heads((*l.v)(read_TD, s)), spec_.before, spec_.behind);
  const at::Tensor place_RNH = heads((*l.place)(waves(spec_.before, spec_.behind, spec_.width, x_TD), s));
  const at::Tensor q_TN1H = q_TNH.unsqueeze(2);
  at::Tensor score_TNR = at::matmul(q_TN1H, k_TRNH.permute({0, 2, 3, 1})).squeeze(2) +
                         at::matmul(q_TNH.transpose(0, 1), place_RNH.permute({1, 2, 0})).transpose(0, 1);
  score_TNR = widened((score_TNR / spec_.cap).tanh() * spec_.cap);
  // Rows beyond the ends are none.
  const at::TensorOptions whole = at::TensorOptions(x_TD.device()).dtype(at::kLong);
  const at::Tensor of_TR = at::arange(rows, whole).unsqueeze(1) + at::arange(-spec_.before, spec_.behind + 1, whole);
  const at::Tensor none_T1R = (of_TR < 0).logical_or(of_TR >= rows).unsqueeze(1);
  const at::Tensor share_TNR = at::softmax(score_TNR.masked_fill(none_T1R, -INFINITY), -1).to(x_TD.scalar_type());
  const at::Tensor y_TNH = at::matmul(share_TNR.unsqueeze(2), v_TRNH.transpose(1, 2)).squeeze(2);
  return x_TD + (*l.behind_attention)(bounded((*l.out)(y_TNH.reshape({rows, -1}), s)));
}

at::Tensor ConformerTower::tapped(const Layer& l, const at::Tensor& x_TD, const Step& s) const {
  const std::vector<at::Tensor> parts = (*l.in_taps)((*l.before_taps)(x_TD), s).chunk(2, -1);
  const at::Tensor open_TD = parts[0] * parts[1].sigmoid();
  const at::Tensor weight = l.taps->weight().unsqueeze(2);  // [D, 1, 1, taps]
  const at::Tensor y_TD =
      convolved_apart(open_TD.unsqueeze(0).unsqueeze(0), weight, {.left = spec_.taps - 1}).squeeze(0).squeeze(0);
  return x_TD + (*l.out_taps)(at::silu((*l.behind_taps)(bounded(y_TD))), s);
}

at::Tensor ConformerTower::through(const Layer& l, const at::Tensor& x_TD, const Step& s) const {
  const at::Tensor heard_TD = attended(l, fed(l.first, x_TD, s), s);
  return (*l.norm)(bounded(fed(l.last, tapped(l, heard_TD, s), s)));
}

at::Tensor ConformerTower::operator()(const std::vector<at::Tensor>& sounds_MF, const StepOf& step_of,
                                      bool again) const {
  std::vector<at::Tensor> all;
  for (const at::Tensor& sound_MF : sounds_MF) {
    at::Tensor x_TD = front(sound_MF, step_of);
    const Step s = step_of(x_TD.size(0));
    for (const Layer& l : layers_) {
      const RunPart part = [this, &l](const at::Tensor& x, const Step& own) { return through(l, x, own); };
      x_TD = again ? run_again(x_TD, s, Memo::kNothing, part) : part(x_TD, s);
    }
    const at::Tensor kept_TD = x_TD.slice(0, 0, x_TD.size(0), spec_.every).contiguous();
    all.push_back(embedder_.of_rows(kept_TD, step_of(kept_TD.size(0))));
    const int64_t left = spec_.tokens - kept_TD.size(0);
    if (left <= 0) continue;
    const at::Tensor word = at::full({1}, spec_.nothing, at::TensorOptions(x_TD.device()).dtype(at::kLong));
    all.push_back(embedder_.of_words(word, step_of(1)).expand({left, -1}));
  }
  return at::cat(all, 0);
}

}  // namespace apus
