// SPDX-License-Identifier: Apache-2.0
// The C++ signatures of apus::attention, apus::attention_backward and apus::paged_attention, for devices that leave
// what they do not take to the reference.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "tensor/compat.h"

namespace apus::ops {

namespace attention_signature {
using Pair = std::tuple<at::Tensor, at::Tensor>;
using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
// The last five: scale, causal, window, softcap, sinks.
using Forward = Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                     int64_t, int64_t, double, bool, int64_t, double, const OptionalTensor&);
using Backward = Triple(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                        const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t, int64_t, double, bool,
                        int64_t, double, const OptionalTensor&);
using Paged = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                         const at::Tensor&, int64_t, int64_t, double, bool, int64_t, double, const OptionalTensor&);
}  // namespace attention_signature

}  // namespace apus::ops
