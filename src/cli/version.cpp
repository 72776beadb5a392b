// SPDX-License-Identifier: Apache-2.0
// `apus --version`: this program and the machine's instruction set at once, then what libapus.so finds.
#include <cstdio>
#include <string>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/error.h"
#include "cli/command.h"
#include "cli/program.h"

namespace apus {

namespace {

std::string instruction_set() {
  std::string names;
  const auto add = [&](bool has, const char* name) {
    if (has) names += str(names.empty() ? "" : " ", name);
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  add(__builtin_cpu_supports("avx2"), "avx2");
  add(__builtin_cpu_supports("fma"), "fma");
  add(__builtin_cpu_supports("avx512f"), "avx512f");
  add(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  add(__builtin_cpu_supports("avx512bf16"), "avx512bf16");
  return "x86-64 " + names;
#elif defined(__aarch64__)
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  add(first & HWCAP_ASIMDDP, "dotprod");
  add(first & HWCAP_SVE, "sve");
  add(second & HWCAP2_I8MM, "i8mm");
  add(second & HWCAP2_BF16, "bf16");
  return names.empty() ? "aarch64" : "aarch64 " + names;
#else
  return "generic";
#endif
}

}  // namespace

int print_version() {
  std::printf("apus %s\n", APUS_VERSION);
  std::printf("compiler        %s\n", __VERSION__);
  std::printf("instruction set %s\n", instruction_set().c_str());
  std::fflush(stdout);
  try {
    const VersionOptions options;
    return run_heavy("version", &options);
  } catch (const Error& error) {
    std::printf("libtorch        not available: %s\n", error.what());
    return 0;
  }
}

}  // namespace apus
