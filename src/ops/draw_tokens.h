// SPDX-License-Identifier: Apache-2.0
// From rows of logits to the next tokens, by the rules and in the order of engine/answer/sampling_rules.h: with the
// same random number the same token is drawn, but where sums round to either side of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace apus::ops {

// How one token is drawn: a row of the operator's table, in this order.
struct DrawRule {
  double row = 0;          // of the logits
  double temperature = 1;  // 0: the first of the likeliest
  double top_k = 0;        // 0: all
  double top_p = 1, min_p = 0, epsilon_cutoff = 0;
  double number = 0;   // the random one, [0, 1)
  double logprob = 0;  // asked for: 0 none, 1 that of the logits, 2 that of the logits over the temperature
};
constexpr int64_t kDrawColumns = sizeof(DrawRule) / sizeof(double);

// Whether tokens are drawn on the device; elsewhere the host is faster (engine/sampler.h).
bool draws_tokens(at::Device device);

// For each rule {token, log-probability} [n, 2] f32, where the logits are; at most 2^24 tokens, so that ids are exact.
// Token -1: none is possible, as every logit is -inf, or one NaN or inf. Nothing waits for the device.
at::Tensor draw_tokens(const at::Tensor& logits_RV, const std::vector<DrawRule>& rules);

// How a device without a kernel for it may draw: by sorting, made of other operators, on the device of these logits [n,
// V] and in at least f32. rule: [n, kDrawColumns] f64 on the host, whose rows are those of the logits.
at::Tensor draw_where_they_lie(const at::Tensor& logits_nV, const at::Tensor& rule);

}  // namespace apus::ops
