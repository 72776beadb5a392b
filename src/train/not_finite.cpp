// SPDX-License-Identifier: Apache-2.0
#include "train/not_finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <c10/core/GradMode.h>

#include "ops/quantised.h"

namespace apus {

bool all_finite(const at::Tensor& t) { return at::isfinite(t.detach()).all().item<bool>(); }

std::string weight_not_finite(Module& model) {
  at::NoGradGuard no_grad;
  std::string found;
  model.visit([&](const std::string& name, Param& p) {
    if (found.empty() && p.data.defined() && p.data.numel() > 0 && !all_finite(ops::plain(p.data))) found = name;
  });
  return found.empty() ? "" : "the weight " + found + " holds values that are not finite";
}

}  // namespace apus
