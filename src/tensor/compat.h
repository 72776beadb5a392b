// SPDX-License-Identifier: Apache-2.0
// The only file that asks for libtorch's version: names for what differs between 1.13 and 2.x.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Optional.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
#define APUS_TORCH_HAS_STD_OPTIONAL 1
#include <optional>
#endif

namespace apus {

// What the dispatcher takes for "Tensor?". Our own interfaces take a plain tensor, undefined meaning none: maybe() and
// or_undefined() go between the two.
#ifdef APUS_TORCH_HAS_STD_OPTIONAL
using OptionalTensor = std::optional<at::Tensor>;
#else
using OptionalTensor = c10::optional<at::Tensor>;
#endif

inline OptionalTensor maybe(const at::Tensor& t) { return t.defined() ? OptionalTensor(t) : OptionalTensor(); }
inline at::Tensor or_undefined(const OptionalTensor& t) { return t.has_value() ? *t : at::Tensor(); }

// Whether matmul and its relatives take this tensor as it is: the CPU of 1.13 has no f16 arithmetic at all, that of the
// first 2.x releases little.
inline bool has_matmul(const at::Tensor& t) { return !(t.is_cpu() && t.scalar_type() == at::kHalf); }

inline const char* torch_version() { return TORCH_VERSION; }

}  // namespace apus
