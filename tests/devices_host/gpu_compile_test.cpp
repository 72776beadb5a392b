// SPDX-License-Identifier: Apache-2.0
// The kernels that the program launches, through NVIDIA's compiler where its library is here: how many registers may be
// spilled to memory is bounded, and each must fit a block as it is launched. No GPU is needed.
#include <gtest/gtest.h>

#include <cstdio>
#include <regex>
#include <string>
#include <vector>

#include "base/error.h"
#include "devices/cuda/nvrtc.h"

namespace apus {
namespace {

struct Instance {
  std::string file, name;
  int threads;  // of a block, at most
};

std::vector<Instance> instances() {
  std::vector<Instance> all{
      {"rope_table", "table", 256}, {"moe", "sum_pairs<bf16>", 256}, {"draw_tokens", "draw", 1024}};
  for (const std::string& type : {std::string("bf16"), std::string("f16"), std::string("float")}) {
    for (const char* name : {"forward", "backward"}) {
      all.push_back({"rms_norm", name + ("<" + type + ">"), 512});
      all.push_back({"swiglu", name + ("<" + type + ">"), 256});
    }
    all.push_back({"rms_norm", "weight_gradient<" + type + ">", 128});
    all.push_back({"rope", "forward<" + type + ">", 512});
    all.push_back({"dropped", "dropped<" + type + ">", 256});
    all.push_back({"store_kv", "store<" + type + ">", 256});
    for (const char* whole : {"true", "false"})
      all.push_back({"store_kv", "store_codes<" + type + ", " + whole + ">", 256});
    all.push_back({"sum_of_squares", "sums<" + type + ">", 256});
    all.push_back({"adamw", "step<" + type + ", " + type + ">", 256});
    all.push_back({"paged_attention", "join<" + type + ">", 128});
    for (const char* shape :
         {"4, 1, 8", "8, 1, 8", "16, 1, 1", "16, 1, 2", "16, 1, 4", "16, 1, 8", "32, 1, 8", "32, 2, 4", "32, 3, 2"})
      for (const char* codes : {"0", "1", "2"})
        all.push_back({"paged_attention", "attend<" + type + ", " + codes + ", " + shape + ">", 128});
    if (type == "float") continue;
    all.push_back({"adamw", "step<" + type + ", float>", 256});
    for (const char* size : {"0, 64", "0, 128", "1, 64", "1, 128", "2, 64", "2, 128"})
      all.push_back({"paged_attention", "attend_in_matrices<" + type + ", " + size + ">", 128});
    for (const char* kind : {"0", "1", "2", "3"}) {
      for (const char* shape : {"0, 1", "1, 4", "3, 2", "3, 4"})
        for (const char* name : {"product<", "product_in_runs<"})
          all.push_back({"codes", name + type + ", " + kind + ", " + shape + ">", 256});
      all.push_back({"codes", "plain<" + type + ", " + kind + ">", 256});
      all.push_back({"codes", "rows_of<" + type + ", " + kind + ">", 128});
    }
    for (const std::string& result : {type, std::string("float")})
      for (const char* rows : {"1, 1", "1, 8", "2, 2", "3, 4", "4, 1", "4, 8"})
        all.push_back({"thin_product", "product<" + type + ", " + result + ", " + rows + ">", 256});
  }
  return all;
}

// Numbers that the assembler's report names, of all functions of a kernel: the sum.
int number_in(const std::string& log, const char* pattern) {
  const std::regex named(pattern);
  int sum = 0;
  for (std::sregex_iterator at(log.begin(), log.end(), named), end; at != end; ++at) sum += std::stoi((*at)[1]);
  return sum;
}

// Bytes, stored and loaded. Some save a few registers so that more blocks are at work; what is drawn calls functions.
int spills_granted(const Instance& kernel) {
  if (kernel.file == "codes" || kernel.file == "draw_tokens") return 256;
  return kernel.name.starts_with("attend<") ? 32 : 0;
}

class GpuCompile : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuCompile, KernelsFitTheirBlocks) {
  if (const std::string why = cuda::why_no_nvrtc(); !why.empty()) GTEST_SKIP() << why;
  constexpr int kRegisters = 65536, kShared = 48 << 10;  // of a block
  std::printf("%-8s %-16s %-34s %9s %7s %7s\n", "chip", "file", "kernel", "registers", "shared", "spills");
  for (const Instance& kernel : instances()) {
    const auto& [file, name, threads] = kernel;
    std::string log;
    try {
      log = cuda::compile_kernel(file, name, GetParam()).log;
    } catch (const Error& e) {
      const std::string what = e.what();
      if (what.find("--gpu-architecture") != std::string::npos)
        GTEST_SKIP() << "NVRTC " << cuda::nvrtc_version() << " does not know " << GetParam();
      FAIL() << what;
    }
    const int registers = number_in(log, "Used ([0-9]+) registers"), shared = number_in(log, "([0-9]+) bytes smem");
    const int spills = number_in(log, "([0-9]+) bytes spill stores") + number_in(log, "([0-9]+) bytes spill loads");
    std::printf("%-8s %-16s %-34s %9d %7d %7d\n", GetParam().c_str(), file.c_str(), name.c_str(), registers, shared,
                spills);
    EXPECT_GT(registers, 0) << name << ": " << log;
    EXPECT_LE(spills, spills_granted(kernel)) << name;
    EXPECT_LE((registers + 7) / 8 * 8 * threads, kRegisters) << name;
    EXPECT_LE(shared, kShared) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Chips, GpuCompile, ::testing::Values("sm_80", "sm_90", "sm_100", "sm_120"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace apus
