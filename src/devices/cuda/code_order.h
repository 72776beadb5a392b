// SPDX-License-Identifier: Apache-2.0
// The order in which an NVIDIA GPU keeps a quantised weight: what kernels/codes.cu reads. No GPU is needed to make it.
//
// Codes: tiles of 16 rows; of a tile, stretches of 128 columns (codes of four bits) or 64 (of eight); of a stretch,
// rows 0 to 7, then 8 to 15; of a row, what four lanes read, sixteen bytes each. Word q of lane t has the columns (4 q
// + t) n to (4 q + t) n + n - 1 of the stretch, n being 8 or 4: so a word of four lanes is 32 or 16 columns on end,
// which are all in one group. Codes of a word begin at its lowest bits. Those of Counted are in the order 0, 2, 4, 6,
// 1, 3, 5, 7, so that neighbours are 16 bits apart. Scales, zeros and leasts: tiles, groups, then rows 0, 8, 1, 9 and
// so on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "quant/codes.h"
#include "quant/matrix.h"

namespace apus::cuda {

// As kernels/codes.cu has it.
struct KernelCodes {
  const void *code, *scale, *zero, *least;
  float factor, least_factor;
  int rows, columns, stretches, groups, word_shift, wide;
  float book[16];
};

struct CodeOrder {
  enum Kind { Book, Counted, Signed, E4m3 };
  // Shares [0, count) out over threads.
  using ShareOut = std::function<void(int64_t count, const std::function<void(int64_t begin, int64_t end)>&)>;

  // None: this weight is in no such order. `exact`: numbers of groups stay in f32; only rows made plain can be had
  // then.
  static std::optional<CodeOrder> of(const quant::Matrix& matrix, bool exact);
  // `bytes` of them, and the factors.
  void pack(const quant::Matrix& matrix, uint8_t* out, const ShareOut& share);
  KernelCodes at(const void* packed) const;

  int64_t bits() const { return kind == Book || kind == Counted ? 4 : 8; }
  int64_t stretch() const { return 512 / bits(); }
  int64_t tiles() const { return (rows + 15) / 16; }

  Kind kind;
  int64_t rows, columns, group;
  int64_t stretches = 0, groups = 0, word_shift = 0;
  bool zeros = false, leasts = false, wide = false;  // wide: scales, zeros and leasts in f32; f16 otherwise
  float factor = 1, least_factor = 1;                // of those in f16
  quant::CodeBook4 book = {};
  int64_t scales_at = 0, zeros_at = 0, leasts_at = 0, bytes = 0;

 private:
  void lay_out();
  void write_panel(int64_t panel, const uint8_t* code, uint8_t* out) const;
};

}  // namespace apus::cuda
