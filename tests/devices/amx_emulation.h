// SPDX-License-Identifier: Apache-2.0
// Runs the real machine code of AMX on a processor without it: the instructions it does not know arrive as SIGILL, are
// decoded, carried out on tiles in thread-local memory, and stepped over. What the manual forbids (no configuration,
// shapes that do not fit) ends the process, as it would on a real machine. Sums are those of the manual: even and odd
// elements of the pairs in a chain of fused multiply-adds each, the two added, that added to the tile;
// denormals are zero.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "devices/cpu/kernels/isa.h"

namespace apus::test {

struct AmxTiles {
  bool configured = false;
  uint8_t config[64] = {};
  alignas(64) uint32_t data[8][16][16] = {};  // [tile][row][dword]
  int rows(int t) const { return config[48 + t]; }
  int bytes(int t) const { return config[16 + 2 * t] + 256 * config[17 + 2 * t]; }
};

class AmxEmulation {
 public:
  static bool possible() { return cpu::machine_isa() == cpu::Isa::Avx512; }  // needed, that is, and its own code runs

  AmxEmulation() {
    struct sigaction action = {};
    action.sa_sigaction = step;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, &before_);
    cpu::assume_isa(cpu::Isa::Amx);
  }
  ~AmxEmulation() {
    cpu::assume_isa(cpu::Isa::Generic);
    sigaction(SIGILL, &before_, nullptr);
  }
  AmxEmulation(const AmxEmulation&) = delete;
  AmxEmulation& operator=(const AmxEmulation&) = delete;

  static inline std::atomic<bool> wrong{false};    // products come out wrong, as on a broken machine
  static inline std::atomic<int64_t> products{0};  // tdpbf16ps carried out

 private:
  static inline thread_local AmxTiles tiles_;

  struct Memory {
    char* base;
    int64_t stride;
  };

  static void demand(bool ok, const char* what) {
    if (ok) return;
    std::fprintf(stderr, "AMX emulation: %s\n", what);
    std::abort();
  }
  static int usable(int tile) {
    demand(tiles_.configured, "no tiles are configured");
    demand(tiles_.rows(tile) > 0 && tiles_.bytes(tile) > 0 && tiles_.bytes(tile) % 4 == 0, "this tile has no shape");
    return tile;
  }

  static void configure(const char* from) {
    std::memcpy(tiles_.config, from, 64);
    demand(tiles_.config[0] <= 1, "unknown palette");
    for (int i = 1; i < 16; ++i) demand(tiles_.config[i] == 0, "reserved bytes, or a start row, in the configuration");
    for (int t = 0; t < 16; ++t) {
      demand(tiles_.rows(t) <= (t < 8 ? 16 : 0), "too many rows, or a tile that does not exist");
      if (t < 8)
        demand(tiles_.bytes(t) <= 64 && (tiles_.bytes(t) == 0) == (tiles_.rows(t) == 0),
               "a tile's shape is half empty or too wide");
    }
    tiles_.configured = tiles_.config[0] == 1;
    std::memset(tiles_.data, 0, sizeof tiles_.data);
  }

  static void load(int t, Memory m) {
    std::memset(tiles_.data[usable(t)], 0, sizeof tiles_.data[t]);
    for (int r = 0; r < tiles_.rows(t); ++r)
      std::memcpy(tiles_.data[t][r], m.base + r * m.stride, static_cast<size_t>(tiles_.bytes(t)));
  }
  static void store(int t, Memory m) {
    usable(t);
    for (int r = 0; r < tiles_.rows(t); ++r)
      std::memcpy(m.base + r * m.stride, tiles_.data[t][r], static_cast<size_t>(tiles_.bytes(t)));
  }

  __attribute__((target("avx512f"))) static void multiply(int c, int a, int b) {
    demand(c != a && a != b && b != c, "tdpbf16ps of tiles that are not three");
    usable(c), usable(a), usable(b);
    demand(
        tiles_.rows(c) == tiles_.rows(a) && tiles_.bytes(c) == tiles_.bytes(b) && tiles_.bytes(a) == 4 * tiles_.rows(b),
        "shapes of tdpbf16ps do not fit");
    _mm_setcsr(0x9fc0);  // denormals are zero, to nearest, nothing traps; the signal's return brings the old one back
    const __mmask16 columns = static_cast<__mmask16>((1u << (tiles_.bytes(c) / 4)) - 1);
    for (int r = 0; r < tiles_.rows(c); ++r) {
      __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
      for (int k = 0; k < tiles_.rows(b); ++k) {
        using Words = uint32_t __attribute__((vector_size(64)));
        const Words x = tiles_.data[a][r][k] - Words{}, y = (Words)_mm512_load_si512(tiles_.data[b][k]);
        even = _mm512_fmadd_ps((__m512)(x << 16), (__m512)(y << 16), even);
        odd = _mm512_fmadd_ps((__m512)(x & 0xffff0000u), (__m512)(y & 0xffff0000u), odd);
      }
      const __m512 sum =
          _mm512_add_ps(_mm512_castsi512_ps(_mm512_load_si512(tiles_.data[c][r])), _mm512_add_ps(even, odd));
      _mm512_store_ps(tiles_.data[c][r], _mm512_maskz_mov_ps(columns, sum));
    }
    if (wrong) tiles_.data[c][0][0] ^= 1u << 20;
    products.fetch_add(1, std::memory_order_relaxed);
  }

  static greg_t& general(ucontext_t* context, int number) {
    static constexpr int kOrder[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                     REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return context->uc_mcontext.gregs[kOrder[number]];
  }

  // The operand at `at` (its ModRM byte), which is then moved behind it.
  static Memory operand(ucontext_t* context, const uint8_t*& at, bool x, bool b) {
    const uint8_t modrm = *at++, mod = modrm >> 6, rm = modrm & 7;
    int64_t base = 0, stride = 0;
    bool wide = mod == 2, from_here = false;  // of the displacement
    if (rm == 4) {
      const uint8_t sib = *at++;
      const int index = (sib >> 3 & 7) + 8 * x;
      if (index != 4) stride = general(context, index) << (sib >> 6);
      if (mod == 0 && (sib & 7) == 5)
        wide = true;
      else
        base = general(context, (sib & 7) + 8 * b);
    } else if (mod == 0 && rm == 5) {
      wide = from_here = true;
    } else {
      base = general(context, rm + 8 * b);
    }
    int32_t offset = 0;
    if (wide)
      std::memcpy(&offset, at, 4), at += 4;
    else if (mod == 1)
      offset = static_cast<int8_t>(*at++);
    if (from_here) base = reinterpret_cast<int64_t>(at);
    return {reinterpret_cast<char*>(base + offset), stride};
  }

  static void step(int, siginfo_t*, void* opaque) {
    auto* context = static_cast<ucontext_t*>(opaque);
    const auto* at = reinterpret_cast<const uint8_t*>(context->uc_mcontext.gregs[REG_RIP]);
    demand(at[0] == 0xc4 && (at[1] & 31) == 2 && (at[2] & 0x84) == 0, "an illegal instruction that is none of AMX");
    const bool x = !(at[1] & 0x40), b = !(at[1] & 0x20);
    const int third = 15 - (at[2] >> 3 & 15), prefix = at[2] & 3, opcode = at[3],
              modrm = at[4];  // prefix: none, 66, f3, f2
    const int reg = modrm >> 3 & 7, rm = modrm & 7;
    const bool registers = modrm >> 6 == 3;
    at += 4;
    if (opcode == 0x49 && registers) {
      ++at;
      if (prefix == 0)
        tiles_ = AmxTiles{};  // tilerelease
      else
        demand(prefix == 3, "unknown"), std::memset(tiles_.data[usable(reg)], 0, sizeof tiles_.data[reg]);  // tilezero
    } else if (opcode == 0x49) {
      const Memory m = operand(context, at, x, b);
      if (prefix == 0)
        configure(m.base);
      else
        demand(prefix == 1, "unknown"), std::memcpy(m.base, tiles_.config, 64);
    } else if (opcode == 0x4b) {
      demand(!registers && rm == 4, "tileloadd and tilestored want an index");
      const Memory m = operand(context, at, x, b);
      if (prefix == 2)
        store(reg, m);
      else
        demand(prefix == 3 || prefix == 1, "unknown"), load(reg, m);  // for now or for once: the same here
    } else {
      demand(opcode == 0x5c && prefix == 2 && registers, "an instruction of AMX that is not known here");
      ++at;
      multiply(reg, rm, third);
    }
    context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(at);
  }

  struct sigaction before_ = {};
};

}  // namespace apus::test
#else
#include <cstdint>

namespace apus::test {
struct AmxEmulation {
  static bool possible() { return false; }
  static inline bool wrong = false;
  static inline int64_t products = 0;
};
}  // namespace apus::test
#endif
