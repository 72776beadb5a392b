// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/awq_search.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace apus {

namespace {
constexpr int64_t kShares = 20;  // ratios between what inputs and what weights say
constexpr int64_t kClips = 10;   // bounds that are tried, of kClipSteps down to a half
constexpr int64_t kClipSteps = 20;
constexpr int64_t kClipRows = 256;  // outputs at a time, which bounds memory

at::Tensor grouped(const at::Tensor& weight_OI, int64_t group) {
  return weight_OI.reshape({weight_OI.size(0), -1, group});
}

at::Tensor rounded_groups(const at::Tensor& weight_OGK) {
  const at::Tensor low = weight_OGK.amin({2}, true), high = weight_OGK.amax({2}, true);
  const at::Tensor scale = (high - low).clamp_min(1e-5) / 15, zero = (-(low / scale).round()).clamp(0, 15);
  return (((weight_OGK / scale).round() + zero).clamp(0, 15) - zero) * scale;
}

// How large each input's weights are beside the largest of their groups: the mean over all outputs.
at::Tensor mean_share(const std::vector<at::Tensor>& weights, int64_t group) {
  const at::Tensor all = grouped(at::cat(weights, 0), group).abs();
  return (all / (all.amax({2}, true) + 1e-6)).reshape({all.size(0), -1}).mean(at::IntArrayRef{0});
}

at::Tensor scales_of(const at::Tensor& mean_I, const at::Tensor& share_I, double ratio) {
  const at::Tensor raw = (mean_I.pow(ratio) / (share_I.pow(1 - ratio) + 1e-4)).clamp_min(1e-4);
  const at::Tensor scale = raw / (raw.max() * raw.min()).sqrt();
  return at::where(scale.isfinite(), scale, at::ones_like(scale));
}
}  // namespace

at::Tensor rounded_to_four_bits(const at::Tensor& weight_OI, int64_t group) {
  return rounded_groups(grouped(weight_OI, group)).reshape(weight_OI.sizes());
}

AwqScales search_awq_scales(const std::vector<at::Tensor>& weights, const at::Tensor& mean_I, int64_t group,
                            const std::function<double(const std::vector<at::Tensor>&)>& loss,
                            const std::string& name) {
  const at::Tensor share_I = mean_share(weights, group);
  AwqScales found;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < kShares; ++k) {
    const at::Tensor scale_I = scales_of(mean_I, share_I, static_cast<double>(k) / kShares);
    std::vector<at::Tensor> changed;
    for (const at::Tensor& w : weights) changed.push_back(rounded_to_four_bits(w * scale_I, group) / scale_I);
    found.losses.push_back(loss(changed));
    if (!(found.losses.back() < least)) continue;
    least = found.losses.back(), found.best = k, found.scale_I = scale_I;
  }
  require(found.scale_I.defined(), Fault::Model, name, ": the model makes infinities or no numbers of the ",
          "calibration rows. Is the checkpoint sound?");
  return found;
}

at::Tensor search_awq_clips(const at::Tensor& weight_OI, const at::Tensor& x_TI, int64_t group) {
  const at::Tensor x_GTK = grouped(x_TI, group).transpose(0, 1).contiguous();
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < weight_OI.size(0); row += kClipRows) {
    const at::Tensor own = grouped(weight_OI.narrow(0, row, std::min(kClipRows, weight_OI.size(0) - row)), group);
    const at::Tensor largest = own.abs().amax({2}, true);
    at::Tensor best = largest.clone(), least = at::full_like(largest, 1e9);
    for (int64_t i = 0; i < kClips; ++i) {
      const at::Tensor most = largest * (1 - static_cast<double>(i) / kClipSteps);
      const at::Tensor change = rounded_groups(at::minimum(at::maximum(own, -most), most)) - own;
      const at::Tensor error =
          at::bmm(x_GTK, change.permute({1, 2, 0})).square().mean(at::IntArrayRef{1}).t().unsqueeze(2);
      const at::Tensor better = error < least;
      least = at::where(better, error, least), best = at::where(better, most, best);
    }
    parts.push_back(best.squeeze(2));
  }
  return at::cat(parts, 0);
}

at::Tensor clipped(const at::Tensor& weight_OI, const at::Tensor& most_OG) {
  const at::Tensor most = most_OG.unsqueeze(2);
  const at::Tensor w = grouped(weight_OI, weight_OI.size(1) / most_OG.size(1));
  return at::minimum(at::maximum(w, -most), most).reshape(weight_OI.sizes());
}

}  // namespace apus
