// SPDX-License-Identifier: Apache-2.0
// Random numbers by counter: the n-th number of a stream is a pure function of (seed, stream, n). So they are the same
// on every machine and thread count, and a resumed run goes on by restoring one integer. Not for secrets.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace apus {

uint64_t mix(uint64_t seed, uint64_t stream, uint64_t counter);  // 64 well-mixed bits
uint64_t stream_named(std::string_view purpose);                 // a stream by its purpose: "data.shuffle"

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0, uint64_t counter = 0)
      : seed_(seed), stream_(stream), counter_(counter) {}
  Random(uint64_t seed, std::string_view purpose) : Random(seed, stream_named(purpose)) {}

  uint64_t bits() { return mix(seed_, stream_, counter_++); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }  // [0, 1)
  uint64_t below(uint64_t limit);                                             // [0, limit), unbiased; limit > 0
  double normal();                                                            // mean 0, variance 1
  uint64_t counter() const { return counter_; }                               // to be saved for a resume

  template <class T>
  void shuffle(std::span<T> items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t seed_, stream_, counter_;
};

}  // namespace apus
