// SPDX-License-Identifier: Apache-2.0
// The C++ signatures of apus::attention and apus::attention_backward,
// for devices that leave what they do not take to the reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

namespace apus::ops {

namespace attention_signature {
using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Forward = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                     int64_t, int64_t, double, bool, int64_t);
using Backward = Triple(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t, double, bool,
                        int64_t);
}  // namespace attention_signature

}  // namespace apus::ops
