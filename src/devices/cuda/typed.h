// SPDX-License-Identifier: Apache-2.0
// A kernel in the types of numbers that it is written for, and what tensors it takes.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>

#include "devices/cuda/kernel.h"

namespace apus::cuda {

// "<bf16, 1, 2>" is put behind the name: the type, then what else there is.
class TypedKernel {
 public:
  TypedKernel(const std::string& file, const std::string& name, const std::string& more = "")
      : bf16_(file, name + "<bf16" + more + ">"),
        f16_(file, name + "<f16" + more + ">"),
        f32_(file, name + "<float" + more + ">") {}
  // With the result's type behind its own: the same, or f32.
  enum class Result { Same, Wide };
  TypedKernel(const std::string& file, const std::string& name, Result result, const std::string& more)
      : bf16_(file, name + (result == Result::Wide ? "<bf16, float" : "<bf16, bf16") + more + ">"),
        f16_(file, name + (result == Result::Wide ? "<f16, float" : "<f16, f16") + more + ">"),
        f32_(file, name + "<float, float" + more + ">") {}
  const Kernel& of(at::ScalarType type) const {
    return type == at::kBFloat16 ? bf16_ : type == at::kHalf ? f16_ : f32_;
  }

 private:
  Kernel bf16_, f16_, f32_;
};

inline bool is_narrow_or_float(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf || type == at::kFloat;
}
// How many numbers of this type are read at once, and whether rows of them can be: both address and distance fit.
inline int64_t pack_of(const at::Tensor& t) { return 16 / t.element_size(); }
inline bool in_packs(const at::Tensor& t) {
  const int64_t pack = pack_of(t);
  if (t.dim() == 0 || t.size(-1) % pack != 0 || (t.size(-1) > 1 && t.stride(-1) != 1)) return false;
  for (int64_t i = 0; i + 1 < t.dim(); ++i)
    if (t.size(i) > 1 && t.stride(i) % pack != 0) return false;
  return reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0;
}
inline const void* address(const at::Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; }

}  // namespace apus::cuda
