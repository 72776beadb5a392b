// SPDX-License-Identifier: Apache-2.0
// Quantised weights as this device keeps them: codes of four, six or eight bits in the order of products.
#pragma once

#include <ATen/core/Tensor.h>

#include "devices/cpu/kernels/kernels.h"
#include "quant/codes.h"
#include "quant/matrix.h"

namespace apus::cpu {

// One tensor of bytes: a head; the codes of 32 rows after the other, as CodePanel describes them; scales, and zeros and
// leasts where there are, each [rows / 32][groups][32 rows].
class Codes {
 public:
  explicit Codes(const at::Tensor& packed);
  // Undefined: this weight is in no such order, as its groups begin between the vectors of a kernel.
  static at::Tensor pack(const quant::Matrix& matrix, bool int8);

  int64_t rows() const { return head_->rows; }
  int64_t columns() const { return head_->columns; }
  // Whether products round x to eight bits. FP8 weights are no whole numbers: theirs do not.
  bool int8() const { return head_->int8; }
  CodePanel panel(int64_t panel) const;
  int64_t filled() const { return head_->filled(); }
  // Rows from `row` on, all of the same 32, `depth` columns from `first` on, which is a multiple of kCodeStretch, as
  // bf16 `apart` from each other. Filled up to a multiple of 32 columns with finite numbers.
  void plain(int64_t row, int64_t count, int64_t first, int64_t depth, bf16* out, int64_t apart) const;

 private:
  struct Head {
    int64_t rows, columns, group, groups;
    quant::CodeForm::Kind kind;
    bool zeros, leasts, wide, int8;
    float factor, least_factor, book_factor;
    float book[16];
    int8_t whole_book[16];  // times book_factor
    bool counts;            // codes are whole numbers from `offset` on
    bool six;               // of six bits
    int32_t offset;
    int64_t scales_at, zeros_at, leasts_at, bytes;  // from the head on

    int64_t bits() const { return kind == quant::CodeForm::Kind::Book ? 4 : six ? 6 : 8; }
    int64_t filled() const { return (columns + 31) / 32 * 32; }
    int64_t panels() const { return (rows + kPanel - 1) / kPanel; }
    int64_t panel_bytes() const { return kPanel * filled() * bits() / 8; }
    int64_t scale_bytes() const { return wide ? 4 : 2; }
    void read_book(const quant::CodeBook4& from);
    void lay_out();
  };
  static constexpr int64_t kHeadBytes = 256, kBehind = 64;  // that kernels may read behind a part
  static_assert(sizeof(Head) <= kHeadBytes);
  template <class Four>
  static void write_six(const Head& head, const Four& four, uint8_t* out);
  static void write_codes(const Head& head, int64_t panel, const uint8_t* code, uint8_t* out);
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(head_); }

  at::Tensor held_;
  const Head* head_;
};

}  // namespace apus::cpu
