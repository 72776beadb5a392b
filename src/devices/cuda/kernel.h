// SPDX-License-Identifier: Apache-2.0
// Our own kernels: plain CUDA in devices/cuda/kernels, which are part of the program as text. What is needed is
// compiled for the device at hand by NVRTC, which comes with libtorch, when it is first launched (a few tenths of a
// second), and kept in a cache folder for later runs. So no CUDA toolkit is needed to build the program or to run it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace apus::cuda {

struct Extent {
  int64_t x = 1, y = 1, z = 1;
};

class Kernel {
 public:
  // `file`: of devices/cuda/kernels, without .cu; `name`: what of it is run, "forward<bf16>".
  Kernel(std::string file, std::string name) : file_(std::move(file)), name_(std::move(name)) {}

  // On the current device and stream. The arguments' types are those of the kernel's parameters, to the byte.
  template <class... Arguments>
  void operator()(Extent grid, Extent block, Arguments... arguments) const {
    void* pointers[] = {&arguments...};
    launch(grid, block, pointers);
  }

 private:
  void launch(Extent grid, Extent block, void** arguments) const;
  void* function(int device) const;  // compiled and loaded

  static constexpr size_t kDevices = 64;
  std::string file_, name_;
  mutable std::array<std::atomic<void*>, kDevices> loaded_{};
};

// What keeps kernels of ours from being used on the current device; empty: nothing.
std::string why_no_kernels();

}  // namespace apus::cuda
