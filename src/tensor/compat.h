// SPDX-License-Identifier: Apache-2.0
// The only file that asks for libtorch's version: names for what differs between 1.13 and 2.x.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/version.h>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
#include <optional>
#else
#include <c10/util/Optional.h>
#endif

namespace apus {

// What the dispatcher takes for "T?".
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
template <class T>
using Optional = std::optional<T>;
constexpr std::nullopt_t kNone = std::nullopt;
#else
template <class T>
using Optional = c10::optional<T>;
constexpr c10::nullopt_t kNone = c10::nullopt;
#endif

// Our own interfaces take a plain tensor that is undefined for none: maybe() and or_undefined() convert.
using OptionalTensor = Optional<at::Tensor>;

inline OptionalTensor maybe(const at::Tensor& t) { return t.defined() ? OptionalTensor(t) : OptionalTensor(); }
inline at::Tensor or_undefined(const OptionalTensor& t) { return t.has_value() ? *t : at::Tensor(); }

// Whether matmul and its relatives take this tensor as it is: the CPU of 1.13 has no f16 arithmetic at all, that of the
// first 2.x releases little.
inline bool has_matmul(const at::Tensor& t) { return !(t.is_cpu() && t.scalar_type() == at::kHalf); }

inline const char* torch_version() { return TORCH_VERSION; }

}  // namespace apus
