// SPDX-License-Identifier: Apache-2.0
// AWQ: input channels that matter are scaled up before rounding to four bits, and their inputs down; then each group is
// clipped where that lessens its error (Lin et al. 2023).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace apus {

// To four bits and back, in f32; weight [out, in], groups along the inputs.
at::Tensor rounded_to_four_bits(const at::Tensor& weight_OI, int64_t group);

struct AwqScales {
  at::Tensor scale_I;  // of the best share; weights are multiplied by it, their inputs divided
  int64_t best = 0;
  std::vector<double> losses;  // of the shares k / 20
};
// `weights` [out, in] f32 share one input; mean_I: the mean magnitude of each of its channels. `loss`: by how much the
// outputs change with these weights, which stand for the scaled ones: rounded, and scaled back. Where no loss is finite
// Fault::Model; `name` is for errors.
AwqScales search_awq_scales(const std::vector<at::Tensor>& weights, const at::Tensor& mean_I, int64_t group,
                            const std::function<double(const std::vector<at::Tensor>&)>& loss, const std::string& name);

// The largest magnitude [out, groups] that a group's weights keep, by the inputs of some tokens.
at::Tensor search_awq_clips(const at::Tensor& weight_OI, const at::Tensor& x_TI, int64_t group);
at::Tensor clipped(const at::Tensor& weight_OI, const at::Tensor& most_OG);

}  // namespace apus
