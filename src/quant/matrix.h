// SPDX-License-Identifier: Apache-2.0
// A weight matrix [rows, columns] that is held quantised: what every format offers to those who multiply by it.
//
// A further format is a class that implements dequantise() over the bytes as they lie, in a file of its own. Who reads
// checkpoints of it implements QuantisedWeights (checkpoint/quantised_weights.h), which load_weights() asks for each
// layer's matrix; ops::quantised_tensor (ops/quantised.h) makes a matrix the weight that ops::linear multiplies by.
// Nothing else knows formats.
#pragma once

#include <cstdint>
#include <string>

namespace apus::quant {

struct Shape {
  int64_t rows, columns;
  int64_t count() const { return rows * columns; }
  bool operator==(const Shape&) const = default;
};

class Matrix {
 public:
  explicit Matrix(Shape shape) : shape_(shape) {}
  virtual ~Matrix() = default;
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  Shape shape() const { return shape_; }
  virtual const char* format() const = 0;  // "nf4", "gptq 4 bit": for people
  virtual int64_t bytes() const = 0;       // that it keeps in memory or in mapped files
  // out [count, columns] f32: the rows from `row` on. Some formats do best with 32 rows at a time, from a multiple
  // of 32.
  virtual void dequantise(int64_t row, int64_t count, float* out) const = 0;

 private:
  Shape shape_;
};

}  // namespace apus::quant
