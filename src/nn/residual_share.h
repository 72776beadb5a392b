// SPDX-License-Identifier: Apache-2.0
// The tokens between a model's matrices, shared out among the ranks that share out these (--sequence_parallel, as
// Megatron has it): what layers add to, its norms and what they keep for the backward pass are of a rank's own tokens.
// Mixers and feed-forwards are given all tokens, and the sums behind them give each rank its own. Not to be mixed up
// with ranks that share out the tokens of rows (nn/token_share.h), each of which has its own all the way.
// Shapes: T all tokens of these ranks, t this one's. Where nobody shares them out T is t, and nothing is done here.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "nn/step.h"

namespace apus {

class Comm;  // device/comm.h

// What `part`, a mixer or a feed-forward, makes of all tokens, of which x_tD are this rank's -> [t, D]. All of them are
// not kept: for the backward pass they are gathered again.
at::Tensor through_all_tokens(const at::Tensor& x_tD, const Step& s,
                              const std::function<at::Tensor(const at::Tensor& x_TD)>& part);

// What the ranks sum behind products of which each has made its part, [T, D] -> [t, D]. `known`: as of collectives.
at::Tensor own_sum(const at::Tensor& part_TD, Comm& ranks, const Step& s, const at::Tensor& known = {});

// Of what each rank has made of all tokens: this one's. What is its own already stays.
at::Tensor own_tokens(const at::Tensor& y_TD, const Step& s);

}  // namespace apus
