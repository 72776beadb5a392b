// SPDX-License-Identifier: Apache-2.0
// What the host asks for and what the device does, operator by operator, by libtorch's own profiler.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace apus {

struct TracedOperator {
  std::string name;
  double milliseconds = 0;  // of the device where it was one's; else of the host, without what it calls in turn
  int64_t calls = 0;
};

// From its making to its end; one at a time.
class Trace {
 public:
  explicit Trace(at::Device device);  // that the work is done on
  ~Trace();                           // without finish(): nothing is written
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Writes a file that ui.perfetto.dev and chrome://tracing open; gives the operators by falling time, the device's
  // alone where it has done any.
  std::vector<TracedOperator> finish(const std::filesystem::path& file);

 private:
  bool running_ = true;
};

// The operators of such a file.
std::vector<TracedOperator> traced_operators(const std::string& trace);

}  // namespace apus
