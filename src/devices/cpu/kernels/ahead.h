// SPDX-License-Identifier: Apache-2.0
// Asking memory for what a product of bf16 panels will read soon. A product goes over its panel once per tile of rows
// ("pass"). With one pass, memory is the limit: lines are asked for a fixed distance ahead. With several, the first
// pass over a panel would wait for memory and the others not:
// each of them asks for its share of the next panel instead.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "devices/cpu/kernels/kernels.h"

namespace apus::cpu {
namespace {

class Ahead {
 public:
  // next: the panel that will be read after this one; null: everything is in the caches, ask for nothing.
  Ahead(const bf16* panel, const bf16* next, int64_t k, int64_t pass, int64_t passes) {
    if (!next) return;
    lines_ = static_cast<int>((kLines + passes - 1) / passes);
    at_ = passes == 1 ? panel + kDistance : next + pass * lines_ * 32 * (k / 32);
  }
  // Once per 32 steps of k.
  void fetch() {
    for (int line = 0; line < lines_; ++line) _mm_prefetch(reinterpret_cast<const char*>(at_ + 32 * line), _MM_HINT_T1);
    at_ += 32 * lines_;
  }

 private:
  static constexpr int64_t kLines = 32, kDistance = 4096;  // lines of a panel per 32 steps; elements (8 KB)
  const bf16* at_ = nullptr;
  int lines_ = 0;
};

// The same for weights that are multiplied where they lie, 32 rows at a time, in the order of their addresses.
class AheadRows {
 public:
  // k: elements that the product reads of each row; as many of the next rows are asked for.
  AheadRows(const NextRows& next, int64_t k)
      : lines_((next.rows + next.passes - 1) / next.passes),
        left_(next.rows - next.pass * lines_),
        k_(k),
        ld_(next.ld) {
    if (left_ > lines_) left_ = lines_;
    if (left_ > 0) at_ = next.first + next.pass * lines_ * ld_;
  }
  // Once per 32 steps of k: a line of each row of this pass's share in the end.
  void fetch() {
    for (int64_t line = 0; line < lines_ && left_ > 0; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(at_ + column_), _MM_HINT_T1);
      if ((column_ += 32) >= k_) column_ = 0, at_ += ld_, --left_;
    }
  }

 private:
  int64_t lines_, left_, k_, ld_, column_ = 0;  // left_: rows
  const bf16* at_ = nullptr;
};

}  // namespace
}  // namespace apus::cpu
