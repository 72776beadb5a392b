// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "base/nearest.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace apus::cpu {

namespace {
constexpr const char* kNames[] = {"generic", "avx2", "avx512", "amx"};

#if defined(__x86_64__)
// The kernel hands out the 8 KB of tile state only to processes that ask (arch_prctl ARCH_REQ_XCOMP_PERM, XTILEDATA).
bool amx_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tile = d & (1u << 24), bf16 = d & (1u << 22);
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return tile && bf16 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa ask_processor() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::Generic;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
  if (!avx512) return Isa::Avx2;
  return amx_granted() ? Isa::Amx : Isa::Avx512;
}
#else
Isa ask_processor() { return Isa::Generic; }
#endif

Isa from_environment() {
  const char* name = std::getenv("APUS_CPU_ISA");
  return name && *name ? parse_isa(name) : Isa::Amx;
}

std::atomic<Isa>& cap() {
  static std::atomic<Isa> value{from_environment()};
  return value;
}
}  // namespace

Isa machine_isa() {
  static const Isa best = ask_processor();
  return best;
}

Isa isa() { return std::min(machine_isa(), cap().load(std::memory_order_relaxed)); }

bool bf16_pairs_pay() {
#if defined(__x86_64__)
  static const bool intel = __builtin_cpu_is("intel") != 0;
  return !intel;
#else
  return false;
#endif
}

Isa cap_isa(Isa limit) {
  const Isa before = isa();
  cap().store(limit, std::memory_order_relaxed);
  return before;
}

const char* isa_name(Isa isa) { return kNames[static_cast<int>(isa)]; }

Isa parse_isa(const std::string& name) {
  for (int i = 0; i < 4; ++i)
    if (name == kNames[i]) return static_cast<Isa>(i);
  fail(Fault::Usage, "APUS_CPU_ISA='", name, "' names no instruction set; possible: generic, avx2, avx512, amx");
}

}  // namespace apus::cpu
