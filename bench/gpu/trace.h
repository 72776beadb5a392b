// SPDX-License-Identifier: Apache-2.0
// What a device did during some work, as a file that Perfetto and chrome://tracing open, by libtorch's own profiler.
#pragma once

#include <torch/csrc/autograd/profiler_kineto.h>

#include <functional>
#include <string>

namespace apus::bench {

inline void traced(const std::string& path, const std::function<void()>& work) {
  namespace profiler = torch::profiler::impl;
  if (path.empty()) return work();
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  const std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU, profiler::ActivityType::CUDA};
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  work();
  torch::autograd::profiler::disableProfiler()->save(path);
}

}  // namespace apus::bench
