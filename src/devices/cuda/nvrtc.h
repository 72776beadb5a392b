// SPDX-License-Identifier: Apache-2.0
// NVIDIA's compiler for kernels, a library that libtorch brings and that is opened at run time.
#pragma once

#include <string>

namespace apus::cuda {

std::string nvrtc_version();  // empty: there is none
// Why not; empty: it is there.
std::string why_no_nvrtc();

struct Compiled {
  std::string code;    // a cubin
  std::string symbol;  // what the kernel is called in it
  std::string log;     // what the compiler says of registers, shared memory and spills
};
// `name`, an instance such as "forward<bf16>", of the kernels in `file` (devices/cuda/kernels, without .cu), for a chip
// such as "sm_90". Fault::Device with the compiler's words when it fails.
Compiled compile_kernel(const std::string& file, const std::string& name, const std::string& chip);
// All that the compiler is given.
std::string kernel_source(const std::string& file);

}  // namespace apus::cuda
