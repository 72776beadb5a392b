// SPDX-License-Identifier: Apache-2.0
// The order in which an NPU keeps a quantised weight: that of the vendor's product, column by column of the weight,
// codes as whole numbers of four or eight bits. No device is needed to make it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "quant/matrix.h"

namespace apus::ascend {

// A number is (value(code) + offset) * scale.
struct CodeOrder {
  // Some rows of the weight; their number is filled up to a multiple of eight.
  struct Piece {
    int64_t rows;
    at::Tensor code;           // [columns, rows] int8 or bytes; of four bits [columns, rows / 2], the lower bits first
    at::Tensor scale, offset;  // [groups, rows]
  };

  int64_t rows = 0, columns = 0;
  int64_t group = 0;      // columns; 0: a row is one group
  int64_t bits = 8;       // of a code
  at::ScalarType type{};  // of the weight
  // The vendor's product takes it: codes are whole numbers with a sign, scales and offsets of the weight's type. They
  // are f32 where it does not.
  bool multiplied = false;
  // Products round x to whole numbers of eight bits, a scale a row: of codes that are such, with one scale a row.
  bool rounds = false;
  at::Tensor book;            // [16 or 256] f32, what a code stands for; undefined: itself
  std::vector<Piece> pieces;  // in the order of rows
  // Of matrices that lie one below the other (experts): all pieces, which are its parts, one behind the other.
  Piece stack{};
  bool multiplied_together = false;  // the vendor's grouped product takes it

  // In host memory. No pieces: this weight has no such order. experts > 0: so many matrices, one below the other.
  // may_round: products may round x.
  static CodeOrder of(const quant::Matrix& matrix, at::ScalarType type, int64_t experts = 0, bool may_round = false);

  int64_t bytes() const;
  void move_to(c10::Device device);
  // f32, made of operators that every device has: some rows of a piece, [columns, count]; the rows of `ids` [n] (int64,
  // rows of the whole weight), [n, columns].
  at::Tensor plain(const Piece& piece, int64_t row, int64_t count) const;
  at::Tensor plain_rows(const at::Tensor& ids) const;
  // Of a stack: matrices of some of its experts, [count, columns, rows of one].
  at::Tensor plain_experts(int64_t first, int64_t count) const;
  at::Tensor plain_experts(const at::Tensor& ids) const;

 private:
  bool has_whole_groups() const { return group == 0 || columns % group == 0; }
  at::Tensor plain_matrices(const at::Tensor& code, const at::Tensor& scale, const at::Tensor& offset) const;
  void make_stack();
  void view_stack();
  at::Tensor values(const at::Tensor& code) const;
  at::Tensor scaled(const at::Tensor& value, const at::Tensor& scale, const at::Tensor& offset) const;
};

}  // namespace apus::ascend
