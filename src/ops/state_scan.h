// SPDX-License-Identifier: Apache-2.0
// What layers with a state compute: a causal convolution over each channel, and the sum that a head keeps of its keys
// and values. Each in two forms: over whole packed sequences, with a gradient; and from states on that the cache holds.
//
// Shapes: T tokens, C channels, G groups of heads with one query and key, N heads (a multiple of G), K key size, V
// value size, S sequences, B seats. lengths: tokens of each sequence, on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace apus::ops {

// y_t = bias + sum_j weight[:, last - j] x_(t - j) over the tokens of its own sequence. bias_C may be undefined.
at::Tensor causal_conv(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C,
                       at::IntArrayRef lengths);
// No gradient. before [B, J - 1, C] holds the inputs before these, and then the last of these.
at::Tensor causal_conv_on(const at::Tensor& x_TC, const at::Tensor& weight_CJ, const at::Tensor& bias_C,
                          at::IntArrayRef lengths, const at::Tensor& seat_S, at::Tensor before);

// Before each token a head's sum S [K, V] is multiplied by exp(decay). Then, without shares, S += k v' and y = S' q;
// with shares, a value only corrects what is there: S += k (share (v - S' k))'. All in f32, or all in f64.
struct StateInputs {
  at::Tensor q_TGK, k_TGK, v_TNV;
  at::Tensor decay_TN;       // at most 0; [T, N, K] where each number of a key has its own
  at::Tensor share_TN = {};  // may be undefined
};
at::Tensor state_scan(const StateInputs& in, at::IntArrayRef lengths);
// No gradient. state [B, N, K, V] is that before these tokens, and then that behind them. On a processor the bits of a
// token do not depend on how its sequence is cut into steps.
at::Tensor state_scan_on(const StateInputs& in, at::IntArrayRef lengths, const at::Tensor& seat_S, at::Tensor state);

}  // namespace apus::ops
