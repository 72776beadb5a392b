// SPDX-License-Identifier: Apache-2.0
#include "train/update_in_backward.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/ops.h"
#include "parallel/gradient_hook.h"

namespace apus {

UpdateInBackward::UpdateInBackward(Optimizer& optimizer) : optimizer_(optimizer), squares_(optimizer.size(), -1) {
  for (size_t i = 0; i < optimizer.size(); ++i)
    hooks_.push_back(std::make_unique<GradientHook>(optimizer.param(i).tensor, [this, i] { arrived(i); }));
}

UpdateInBackward::~UpdateInBackward() = default;

void UpdateInBackward::begin(double lr_factor, double grad_scale) {
  armed_ = true, measures_ = false, lr_factor_ = lr_factor, grad_scale_ = grad_scale, outcome_ = {};
  std::fill(squares_.begin(), squares_.end(), -1.0);
}

void UpdateInBackward::measure() { begin(0), measures_ = true; }

// Autograd hands a leaf the sum of what its users gave, once they have all run: whatever else reads the parameter's
// value in the backward pass has read it.
void UpdateInBackward::arrived(size_t i) {
  const NamedParam& param = optimizer_.param(i);
  if (!armed_ || !param.tensor.grad().defined()) return;
  require(squares_[i] < 0, Fault::Bug, "a further part of the gradient of ", param.name,
          " came after the parameter was updated; train this model without --update_in_backward");
  squares_[i] = ops::sum_of_squares({param.tensor.grad()});
  if (outcome_.not_finite.empty() && !std::isfinite(squares_[i])) outcome_.not_finite = param.name;
  if (outcome_.not_finite.empty() && !measures_) {
    if (outcome_.updated++ == 0) optimizer_.begin_step();
    optimizer_.update_one(i, lr_factor_, grad_scale_);
  }
  param.tensor.mutable_grad().reset();
}

UpdateInBackward::Outcome UpdateInBackward::end() {
  armed_ = false;
  double sum = 0;
  for (const double square : squares_) sum += std::max(square, 0.0);
  outcome_.norm = std::sqrt(sum);
  return outcome_;
}

}  // namespace apus
