// SPDX-License-Identifier: Apache-2.0
// A tensor of a checkpoint, as rows that lie in a GGUF file: in one tensor of it, or in several. No tensor library.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "gguf/form.h"

namespace apus {

// A tensor of the file, in which some of the rows lie.
struct GgufPart {
  GgmlType type = GgmlType::F32;
  const std::byte* data = nullptr;  // in the mapped file
  int64_t bytes = 0;
  int64_t rows = 0;  // in each block (an expert, or all there is)
  // Above 0: blocks of so many rows stand there the other way round, as many numbers wide.
  int64_t turned_rows = 0;
};

struct GgufSlice {
  std::vector<int64_t> shape;   // the checkpoint's
  int64_t rows = 0, width = 0;  // of all numbers; where there is an order, a row of a bias is one number
  std::vector<GgufPart> parts = {};
  // Of each row of a block, its part and its row there; null: all are the first part's, in order.
  std::shared_ptr<const std::vector<std::pair<int32_t, int64_t>>> order = nullptr;
  bool turned = false;                // the checkpoint has each block the other way round
  std::vector<float> scales = {};     // of the first part's rows in the file, or of all
  std::vector<int64_t> columns = {};  // the checkpoint's, in the file's order
  GgufTurn::Numbers numbers = GgufTurn::Numbers::Same;
  // A tensor of bytes, of a stack of MXFP4 as gpt-oss's checkpoints hold it: [E, rows, blocks, 16], or [E, rows,
  // blocks].
  enum class Bytes { No, Blocks, Scales } bytes_of = Bytes::No;

  GgmlType type() const;  // of all parts; F32 where they differ
  int64_t bytes() const;
  // Can be used as it lies in the file, by who knows its type.
  bool plain() const;
  // Every row lies somewhere as blocks of numbers of its type.
  bool quantised() const;
  const std::byte* row(int64_t i) const;  // of a quantised one
  void read_rows(int64_t first, int64_t count, float* out) const;
  void read_bytes(int64_t i, uint8_t* out) const;  // a row, where it has bytes
  // Whether it can be held as such bytes, and those.
  bool holds_mxfp4() const;
  GgufSlice as_bytes(Bytes which) const;
  bool in_order() const;     // rows lie one after another, as they are but for `numbers`
  int64_t together() const;  // so many rows or multiples of it are best read at once
};

}  // namespace apus
