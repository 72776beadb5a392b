// SPDX-License-Identifier: Apache-2.0
// Quantised weights as this device keeps them: codes of four or eight bits in the order in which products read them.
#pragma once

#include <ATen/core/Tensor.h>

#include "devices/cpu/kernels/kernels.h"
#include "quant/codes.h"
#include "quant/matrix.h"

namespace apus::cpu {

// One tensor of bytes: a head; the codes of 32 rows after the other, of these the columns by stretches of kCodeStretch,
// of each of these one row after the other; scales, and zeros and leasts where there are, each [rows, groups].
class Codes {
 public:
  explicit Codes(const at::Tensor& packed);
  // Undefined: this weight is in no such order, as its groups begin between the vectors of a kernel.
  static at::Tensor pack(const quant::Matrix& matrix);

  int64_t rows() const { return head_->rows; }
  int64_t columns() const { return head_->columns; }
  // Rows of the panel-th 32, `depth` columns from `first` on, which is a multiple of kCodeStretch, as bf16 `apart` from
  // each other. Filled up to a multiple of 32 columns with finite numbers.
  void plain(int64_t panel, int64_t count, int64_t first, int64_t depth, bf16* out, int64_t apart) const;

 private:
  struct Head {
    int64_t rows, columns, group, groups;
    quant::CodeForm::Kind kind;
    bool zeros, leasts, wide;
    float factor, least_factor;
    float book[16];
    int64_t scales_at, zeros_at, leasts_at, bytes;  // from the head on

    int64_t bits() const { return kind == quant::CodeForm::Kind::Book ? 4 : 8; }
    int64_t filled() const { return (columns + 127) / 128 * 128; }
    int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
    int64_t row_bytes(int64_t columns) const { return columns * bits() / 8; }
    int64_t scale_bytes() const { return wide ? 4 : 2; }
    void lay_out();
  };
  static constexpr int64_t kHeadBytes = 256, kBehind = 64;  // that kernels may read behind a part
  static_assert(sizeof(Head) <= kHeadBytes);
  static void write_codes(const Head& head, int64_t panel, const uint8_t* code, uint8_t* out);

  at::Tensor held_;
  const Head* head_;
};

}  // namespace apus::cpu
