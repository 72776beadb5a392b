// SPDX-License-Identifier: Apache-2.0
// From tensors to the pointers that the inner loops take.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <utility>

#include "base/error.h"
#include "devices/cpu/kernels/kernels.h"

namespace apus::cpu {

template <class E>
E* data(const at::Tensor& t) {
  return static_cast<E*>(t.data_ptr());
}

// Whether the inner loops can take these tensors: all bf16 or all f32 (undefined ones do not count).
template <class... Tensors>
bool same_small_float(const at::Tensor& first, const Tensors&... rest) {
  const at::ScalarType type = first.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && ((!rest.defined() || rest.scalar_type() == type) && ...);
}

// The op's reference body, for types that the inner loops do not know: reached through the key of a backend that no
// tensor here belongs to, since the cpu's own place in the dispatch table is taken.
template <class Signature>
struct Reference;
template <class R, class... A>
struct Reference<R(A...)> {
  static R call(const char* op, A... args) {
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(op, "").typed<R(A...)>();
    return handle.redispatch(c10::DispatchKeySet(c10::DispatchKey::IPU), std::forward<A>(args)...);
  }
};

// Calls body with a bf16 or a float, the tensor's element type.
template <class Body>
auto by_type(const at::Tensor& t, const Body& body) {
  require(same_small_float(t), Fault::Bug, "the cpu's loops take bf16 and f32, not ", c10::toString(t.scalar_type()));
  return t.scalar_type() == at::kFloat ? body(float{}) : body(bf16{});
}

// [..., D] as [rows, D] whose rows are contiguous in themselves and equally far apart;
// a copy only where there is no such view.
inline at::Tensor as_rows(const at::Tensor& x) {
  if (x.dim() == 2 && (x.stride(1) == 1 || x.size(1) == 1)) return x;
  return x.contiguous().view({-1, x.size(-1)});
}

// [T, N, H] whose heads lie side by side; tokens may be any distance apart (a slice of a wider projection).
inline at::Tensor as_heads(const at::Tensor& x_TNH) {
  return x_TNH.stride(2) == 1 && (x_TNH.size(1) == 1 || x_TNH.stride(1) == x_TNH.size(2)) ? x_TNH : x_TNH.contiguous();
}

// The lines (last dimension) of a tensor of any shape, one after the other,
// whatever the strides of the first two dimensions.
template <class E>
class Lines {
 public:
  explicit Lines(const at::Tensor& t)
      : held_(t.dim() <= 3 && t.stride(-1) == 1 ? t : t.contiguous()),
        width(t.size(-1)),
        count(width ? t.numel() / width : 0) {
    base_ = data<E>(held_);
    const bool flat = held_.dim() != 3;
    inner_ = flat ? 1 : held_.size(1);
    outer_stride_ = held_.dim() == 1 ? 0 : held_.dim() <= 3 ? held_.stride(0) : width;
    inner_stride_ = flat ? 0 : held_.stride(1);
  }
  E* operator[](int64_t i) const { return base_ + i / inner_ * outer_stride_ + i % inner_ * inner_stride_; }

 private:
  at::Tensor held_;

 public:
  const int64_t width, count;

 private:
  E* base_;
  int64_t inner_, outer_stride_, inner_stride_;
};

// How many lines of `width` a thread takes at a time: so many that sharing them out costs next to nothing.
inline int64_t lines_at_once(int64_t width) { return width >= 16384 ? 1 : 16384 / (width > 0 ? width : 1); }

}  // namespace apus::cpu
