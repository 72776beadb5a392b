// SPDX-License-Identifier: Apache-2.0
// Updates inside the backward pass: a parameter is updated, and its gradient let go, as soon as that gradient is
// complete. So gradients never exist all together. Nothing can wait for all of them either: no accumulation, no other
// ranks, and clipping by a norm that is known before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/optimizer.h"

namespace apus {

class GradientHook;  // parallel/gradient_hook.h

class UpdateInBackward {
 public:
  explicit UpdateInBackward(Optimizer& optimizer);  // which outlives this
  ~UpdateInBackward();
  UpdateInBackward(const UpdateInBackward&) = delete;
  UpdateInBackward& operator=(const UpdateInBackward&) = delete;

  struct Outcome {
    double norm = 0;      // of all gradients, the parts of which were seen one by one
    int64_t updated = 0;  // parameters
    // The first parameter whose gradient was not; it and all after it were left as they are.
    std::string not_finite;
  };
  void begin(double lr_factor, double grad_scale = 1);  // the backward pass that follows updates
  void measure();                                       // the one that follows only measures the norm
  Outcome end();

 private:
  void arrived(size_t i);

  Optimizer& optimizer_;
  std::vector<std::unique_ptr<GradientHook>> hooks_;
  bool armed_ = false;
  double lr_factor_ = 0, grad_scale_ = 1;
  bool measures_ = false;
  // Of each parameter's gradient, below 0: has not come. Summed in the parameters' order.
  std::vector<double> squares_;
  Outcome outcome_;
};

}  // namespace apus
