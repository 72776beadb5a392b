// SPDX-License-Identifier: Apache-2.0
// Shapes: N patches, M rows, P patches of a row, D width of a patch, n heads, H head size.
#include "models/towers/patch_pooler.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace apus {

PatchPooler::PatchPooler(const VisionSpec& spec, const TowerParts& parts) : form_(spec.pooler) {
  const auto linear = [&](const std::string& part, const char* name) { return &parts.linear(part + name); };
  q_ = linear(form_.attention, ".wq"), k_ = linear(form_.attention, ".wk"), v_ = linear(form_.attention, ".wv");
  out_ = linear(form_.attention, ".wo");
  gate_ = linear(form_.feed_forward, ".w1"), up_ = linear(form_.feed_forward, ".w3");
  down_ = linear(form_.feed_forward, ".w2");
}

namespace {
// The patches of each row counted over all media; -1: none.
at::Tensor patches_of_rows(const std::vector<const MediaContent*>& media) {
  int64_t most = 0, first = 0;
  for (const MediaContent* each : media) most = std::max(most, each->pool);
  std::vector<int64_t> patch;
  for (const MediaContent* each : media) {
    for (size_t at = 0; at < each->pooled.size(); at += static_cast<size_t>(each->pool))
      for (int64_t k = 0; k < most; ++k) {
        const int64_t own = k < each->pool ? each->pooled[at + static_cast<size_t>(k)] : -1;
        patch.push_back(own < 0 ? -1 : first + own);
      }
    first += each->shape[0];
  }
  return at::tensor(patch, at::kLong).view({-1, most});
}
}  // namespace

at::Tensor PatchPooler::attended(const at::Tensor& patch_MPD, const at::Tensor& there_MP,
                                 const std::function<Step(int64_t rows)>& step_of) const {
  const int64_t m = patch_MPD.size(0), p = patch_MPD.size(1);
  const at::Tensor count_M = there_MP.sum(1).to(patch_MPD.scalar_type());
  const at::Tensor mean_MD = patch_MPD.sum(1) / count_M.unsqueeze(1);
  const Step of_rows = step_of(m), of_patches = step_of(m * p);
  const auto heads = [&](const at::Tensor& x) { return x.view({m, -1, form_.heads, form_.head_size()}); };
  const at::Tensor flat = patch_MPD.flatten(0, 1);
  const at::Tensor q_M1nH = heads((*q_)(mean_MD, of_rows));
  const at::Tensor k_MPnH = heads((*k_)(flat, of_patches)), v_MPnH = heads((*v_)(flat, of_patches));
  const double scale = 1 / std::sqrt(static_cast<double>(form_.head_size()));
  const at::Tensor score_MPn =
      ((q_M1nH * k_MPnH).sum(3) * scale)
          .masked_fill(there_MP.logical_not().unsqueeze(2), -std::numeric_limits<double>::infinity());
  const at::Tensor share_MPn = at::softmax(score_MPn, 1, at::kFloat).to(patch_MPD.scalar_type());
  const at::Tensor y_MD = (share_MPn.unsqueeze(3) * v_MPnH).sum(1).flatten(1);
  return (*out_)(y_MD, of_rows);
}

at::Tensor PatchPooler::operator()(const at::Tensor& patch_ND, const std::vector<const MediaContent*>& media,
                                   const std::function<Step(int64_t rows)>& step_of) const {
  const at::Tensor patch_MP = patches_of_rows(media).to(patch_ND.device());
  const at::Tensor there_MP = patch_MP >= 0;
  const at::Tensor all = at::index_select(patch_ND, 0, patch_MP.clamp_min(0).flatten());
  const at::Tensor patch_MPD =
      all.view({patch_MP.size(0), patch_MP.size(1), -1}) * there_MP.unsqueeze(2).to(patch_ND.scalar_type());
  const at::Tensor x_MD = attended(patch_MPD, there_MP, step_of);
  const Step s = step_of(x_MD.size(0));
  return (*down_)(at::silu((*gate_)(x_MD, s)) * (*up_)(x_MD, s), s);
}

}  // namespace apus
