// SPDX-License-Identifier: Apache-2.0
// What every op file shares. An op is a schema in the namespace "apus", a reference body on plain aten operators for
// every device (CompositeExplicitAutograd), a shape function (Meta) and, where it has a gradient, an Autograd kernel
// that calls the schema and its "_backward" schema by name, so that a device's own kernels are found.
//
// A kernel in devices/ registers the same C++ signature as the reference: Tensor is `const at::Tensor&`, Tensor(a!) is
// `at::Tensor&`, Tensor? is `const OptionalTensor&`, int int64_t, float double, bool[n] std::array<bool, n>,
// several results a std::tuple. A result that was not asked for (need_x false) is an undefined tensor.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>

#include "tensor/compat.h"

namespace apus::ops {

// The operator's typed handle; keep it in a function's static, as looking the name up costs a hash and a lock.
template <class Signature>
auto handle(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

// Calls the op's reference body, whatever kernel the device has registered: through the key of a backend that no tensor
// here belongs to, for which CompositeExplicitAutograd stands in.
template <class Signature, class... Args>
auto call_reference(const c10::TypedOperatorHandle<Signature>& op, Args&&... args) {
  return op.redispatch(c10::DispatchKeySet(c10::DispatchKey::IPU), std::forward<Args>(args)...);
}

inline bool requires_grad(const at::Tensor& t) { return t.defined() && t.requires_grad(); }
inline bool requires_grad(const OptionalTensor& t) { return t.has_value() && requires_grad(*t); }

template <class... Tensors>
bool any_requires_grad(const Tensors&... t) {
  return at::GradMode::is_enabled() && (requires_grad(t) || ...);
}

// While one of these lives, calls go straight to the device's kernel, and no gradient is recorded.
using BelowAutograd = at::AutoDispatchBelowADInplaceOrView;

// The type arithmetic on t is done in: at least f32.
inline at::ScalarType wide_type(const at::Tensor& t) {
  return t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
inline at::Tensor widen(const at::Tensor& t) { return t.to(wide_type(t)); }

// a b, in f32 where the device has no matmul for the type.
at::Tensor matmul(const at::Tensor& a, const at::Tensor& b);

}  // namespace apus::ops
