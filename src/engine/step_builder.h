// SPDX-License-Identifier: Apache-2.0
// From the scheduler's plan to what the model takes: ids, media, cache places. Positions are left to the model. The
// buffers are kept between steps.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/scheduler.h"
#include "engine/step_numbers.h"
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
  // Its two halves. The numbers are valid until the next call; media are not among them.
  const StepNumbers& read(const StepPlan& plan, bool seats, const std::vector<std::string>& adapter);
  Built build(StepNumbers& numbers, KvCache& cache);

  // For a layer outside attention (the head) on a selection of a step's tokens: which adapter each goes through.
  Step select(const Step& step, const std::vector<std::string>& adapter_of_row) const;
  Step select(bool routed, const AdapterRoutes& routes) const;

  template <class T>
  at::Tensor tensor(std::vector<T>& values, at::ScalarType type) const;  // on the device; on the CPU a view of `values`

 private:
  void add_tokens(const StepPlan::Item& item);
  void add_blocks(const StepPlan& plan);
  void route(const StepPlan& plan, const std::vector<std::string>& adapter);
  void begin_states(const StepNumbers& numbers, KvCache& cache) const;  // of sequences that begin

  at::Device device_;
  int64_t block_size_;
  StepNumbers numbers_;
  std::vector<int32_t> cu_q_, cu_k_;
};

}  // namespace apus
