// SPDX-License-Identifier: Apache-2.0
// A quantised weight as codes of four or eight bits, for products that make plain numbers of them by the way: what a
// format offers besides Matrix where its columns form groups. A device keeps them in an order
// of its own (ops/quantised.h).
#pragma once

#include <cstdint>
#include <optional>

#include "quant/code_books.h"

namespace apus::quant {

// A number is (value(code) - zero) * scale - least, the last three of its row and its group of columns.
struct CodeForm {
  // What a code stands for: a number of a book of 16; a whole number; an FP8 one.
  enum class Kind { Book, Signed, E4m3 };
  Kind kind;
  int64_t group;                       // columns; the last of a row may have fewer
  bool zeros = false, leasts = false;  // false: they are 0
  CodeBook4 book = {};                 // of Kind::Book
  // Of Kind::Signed: codes are the whole numbers from `lowest` on that so many bits can tell apart.
  int bits = 8, lowest = -128;
  bool operator==(const CodeForm&) const = default;
};

inline constexpr CodeBook4 kWholeNumbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

struct CodeRows {
  uint8_t* code;                // [rows, columns]
  float *scale, *zero, *least;  // [rows, groups]; written where the form has them
};

class Coded {
 public:
  virtual ~Coded() = default;
  // None: not of this weight.
  virtual std::optional<CodeForm> code_form() const = 0;
  // `count` rows from `row` on, a multiple of 32.
  virtual void read_codes(int64_t row, int64_t count, const CodeRows& out) const = 0;
};

}  // namespace apus::quant
