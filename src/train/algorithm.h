// SPDX-License-Identifier: Apache-2.0
// What makes one training algorithm different from another: what it collects and its loss. The trainer owns the rest.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/batch.h"
#include "train/forward.h"

namespace apus {

class TextEngine;  // engine/answer/text_engine.h

struct Ratio {
  // Scalars, detached; what is shown is the quotient of the sums over everything since the last line.
  at::Tensor sum, count;
};

// Never a mean: the trainer divides the sum by the count of all micro-batches and ranks of the step.
struct Loss {
  at::Tensor sum;  // scalar, differentiable
  std::map<std::string, Ratio> metrics;
};

struct Actors {
  Model& policy;
  Model* reference = nullptr;
  Model* value = nullptr;
  Model* reward = nullptr;
  TextEngine* engine = nullptr;
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // On-policy algorithms roll out and score here; the result is what loss() will see.
  virtual std::vector<Batch> collect(Actors&, std::vector<Batch> batches) { return batches; }
  // What this batch adds to the divisor of the step's loss, known before any forward pass.
  virtual double count(const Batch& batch) const = 0;
  // `batch` must outlive the backward pass. With gradients off this is the evaluation's loss.
  virtual Loss loss(Actors& actors, Batch& batch, const Forward& forward) = 0;
};

}  // namespace apus
