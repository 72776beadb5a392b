// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_hook.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <memory>
#include <utility>

namespace apus {

GradientHook::GradientHook(const at::Tensor& leaf, std::function<void()> arrived)
    : accumulator_(torch::autograd::impl::grad_accumulator(leaf)) {
  using Values = torch::autograd::variable_list;
  hook_ = accumulator_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [arrived = std::move(arrived)](const Values& outputs, const Values&) {
        arrived();
        return outputs;
      }));
}

GradientHook::~GradientHook() { accumulator_->del_post_hook(hook_); }

}  // namespace apus
