// SPDX-License-Identifier: Apache-2.0
// From the scheduler's plan to what the model takes: ids, media, cache places. Positions are left to the model. The
// buffers are kept between steps.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "nn/inputs.h"
#include "nn/step.h"

namespace apus {

class StepBuilder {
 public:
  StepBuilder(at::Device device, int64_t block_size) : device_(device), block_size_(block_size) {}

  struct Built {
    Inputs inputs;
    Step step;
  };
  // `adapter[i]`: of the plan's i-th item ("" none); empty when no adapters are loaded: then nothing is routed.
  // The tensors are valid until the next call.
  Built operator()(const StepPlan& plan, KvCache& cache, const std::vector<std::string>& adapter);

  // For a layer outside attention (the head) on a selection of a step's tokens: which adapter each goes through.
  Step select(const Step& step, const std::vector<std::string>& adapter_of_row) const;

  template <class T>
  at::Tensor tensor(std::vector<T>& values, at::ScalarType type) const;  // on the device; on the CPU a view of `values`

 private:
  void add_tokens(const StepPlan::Item& item, Step& step);
  at::Tensor block_table(const StepPlan& plan);
  void take_seats(Step& step, const StepPlan& plan);
  void route(Step& step, const StepPlan& plan, const std::vector<std::string>& adapter);

  at::Device device_;
  int64_t block_size_;
  std::vector<int64_t> id_, slot_, seat_;
  std::vector<int32_t> cu_q_, cu_k_, table_;
};

}  // namespace apus
