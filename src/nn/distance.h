// SPDX-License-Identifier: Apache-2.0
// Attention whose scores get a learnt number for the distance of query and key, each head its own: MPNet's, which is
// T5's. Both ways, without a cache.
#pragma once

#include "nn/attention_form.h"
#include "nn/step.h"

namespace apus {

// The class of each pair's distance, [L, L] int64: near ones have classes of their own, far ones share them by their
// logarithm. Keys behind the query have the upper half.
at::Tensor distance_classes(int64_t length, at::Device device);

at::Tensor attention_by_distance(const at::Tensor& q_TNH, const at::Tensor& k_TNH, const at::Tensor& v_TNH,
                                 double scale, const Step& s);

}  // namespace apus
