// SPDX-License-Identifier: Apache-2.0
#include "devices/cpu/kernels/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/nearest.h"
#include "devices/cpu/kernels/kernels.h"
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace apus::cpu {

namespace {
constexpr const char* kNames[] = {"generic", "neon", "dotprod", "i8mm", "avx2", "avx512", "amx"};

struct Found {
  Isa isa;
  bool amx_wrong;
};

#if defined(__x86_64__)
// The kernel hands out the 8 KB of tile state only to processes that ask (arch_prctl ARCH_REQ_XCOMP_PERM, XTILEDATA).
bool amx_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tile = d & (1u << 24), bf16 = d & (1u << 22);
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return tile && bf16 && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Clang 14 does not know the name "f16c" in __builtin_cpu_supports.
bool converts_halves() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29));
}

Found ask_processor() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !converts_halves())
    return {Isa::Generic, false};
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
  if (!avx512) return {Isa::Avx2, false};
  if (!amx_granted()) return {Isa::Avx512, false};
  return amx_multiplies() ? Found{Isa::Amx, false} : Found{Isa::Avx512, true};
}
#elif defined(__aarch64__)
Found ask_processor() {
  if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP)) return {Isa::Neon, false};
  return {getauxval(AT_HWCAP2) & HWCAP2_I8MM ? Isa::I8mm : Isa::Dotprod, false};
}
#else
Found ask_processor() { return {Isa::Generic, false}; }
#endif

const Found& found() {
  static const Found once = ask_processor();
  return once;
}

std::atomic<Isa>& assumed() {
  static std::atomic<Isa> value{Isa::Generic};
  return value;
}

Isa from_environment() {
  const char* name = std::getenv("APUS_CPU_ISA");
  return name && *name ? parse_isa(name) : isas().back();
}

std::atomic<Isa>& cap() {
  static std::atomic<Isa> value{from_environment()};
  return value;
}
}  // namespace

const std::vector<Isa>& isas() {
#if defined(__x86_64__)
  static const std::vector<Isa> all{Isa::Generic, Isa::Avx2, Isa::Avx512, Isa::Amx};
#elif defined(__aarch64__)
  static const std::vector<Isa> all{Isa::Neon, Isa::Dotprod, Isa::I8mm};
#else
  static const std::vector<Isa> all{Isa::Generic};
#endif
  return all;
}

Isa machine_isa() { return std::max(found().isa, assumed().load(std::memory_order_relaxed)); }
void assume_isa(Isa isa) { assumed().store(isa, std::memory_order_relaxed); }
bool amx_is_wrong() { return found().amx_wrong; }

bool amx_multiplies() {
#if defined(__x86_64__)
  // Two tiles, one tile, and a row of the next; small integers: no sum is rounded.
  constexpr int64_t kRows = 49, kInner = 64;
  bf16 a[kRows][kInner], panel[panel_size<bf16>(kInner)];
  const auto number = [](int64_t i) { return static_cast<int>(i * 7 % 17) - 8; };
  const auto narrow = [](int v) {
    const auto wide = static_cast<float>(v);
    uint32_t bits;
    std::memcpy(&bits, &wide, sizeof bits);
    return static_cast<bf16>(bits >> 16);
  };
  const auto factor = [&](int64_t k, int64_t column) { return number(k * 3 + column * 5 + k * column); };
  for (int64_t i = 0; i < kRows * kInner; ++i) a[i / kInner][i % kInner] = narrow(number(i));
  for (int64_t k = 0; k < kInner; ++k)
    for (int64_t j = 0; j < kPanel; ++j)
      panel[k / 32 * 1024 + j / 16 * 512 + k % 32 / 2 * 32 + j % 16 * 2 + k % 2] = narrow(factor(k, j));
  float product[kRows][kPanel];
  enter_amx();
  multiply_amx(kRows, kInner, a[0], kInner, panel, product[0], kPanel, false, nullptr);
  leave_amx();
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kPanel; ++j) {
      int sum = 0;
      for (int64_t k = 0; k < kInner; ++k) sum += number(i * kInner + k) * factor(k, j);
      if (product[i][j] != static_cast<float>(sum)) return false;
    }
  return true;
#else
  return false;
#endif
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
  std::string possible;
  for (const Isa isa : isas()) {
    if (name == isa_name(isa)) return isa;
    possible += str(possible.empty() ? "" : ", ", isa_name(isa));
  }
  fail(Fault::Usage, "APUS_CPU_ISA='", name,
       "' names no instruction set of this kind of processor; possible: ", possible);
}

}  // namespace apus::cpu
