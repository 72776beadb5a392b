// SPDX-License-Identifier: Apache-2.0
// A call inside the backward pass, each time that a leaf of the tape has received a part of its gradient.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <functional>

namespace apus {

class GradientHook {
 public:
  GradientHook(const at::Tensor& leaf, std::function<void()> arrived);
  ~GradientHook();
  GradientHook(const GradientHook&) = delete;
  GradientHook& operator=(const GradientHook&) = delete;

 private:
  // Kept: autograd itself holds it weakly. A std::shared_ptr, in late 2.x a c10::intrusive_ptr.
  decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator_;
  uintptr_t hook_;
};

}  // namespace apus
