// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <cmath>
#include <numbers>

namespace apus {

namespace {
// Two 64-bit words, ten rounds of multiply-and-swap with a key that walks by a Weyl
// sequence (the shape of Philox 2x64).
constexpr uint64_t kMultiplier = 0xD2B74407B1CE6E93ull, kWeyl = 0x9E3779B97F4A7C15ull;
constexpr int kRounds = 10;

uint64_t finalise(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
}  // namespace

uint64_t mix(uint64_t seed, uint64_t stream, uint64_t counter) {
  uint64_t low = counter, high = stream, key = seed;
  for (int round = 0; round < kRounds; ++round) {
    const unsigned __int128 product = static_cast<unsigned __int128>(low) * kMultiplier;
    low = static_cast<uint64_t>(product >> 64) ^ key ^ high;
    high = static_cast<uint64_t>(product);
    key += kWeyl;
  }
  return low;
}

uint64_t stream_named(std::string_view purpose) {
  uint64_t hash = 0xCBF29CE484222325ull;  // FNV-1a
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return finalise(hash);
}

uint64_t Random::below(uint64_t limit) {
  // The high word of bits * limit; the few low words that would favour some results are drawn again.
  const uint64_t unfair = (0 - limit) % limit;
  for (;;) {
    const unsigned __int128 product = static_cast<unsigned __int128>(bits()) * limit;
    if (static_cast<uint64_t>(product) >= unfair) return static_cast<uint64_t>(product >> 64);
  }
}

double Random::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

}  // namespace apus
