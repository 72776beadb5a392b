// SPDX-License-Identifier: Apache-2.0
// A frozen weight that is held quantised is a tensor like any other to those who ask for its shape, type and device.
// Its numbers are known to ops::linear, which makes them a tile at a time, and to the functions here; everything else
// that touches them fails. A device may keep such a weight in an order of its own (pack_codes): then the format's own
// bytes are let go.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "quant/matrix.h"

namespace apus::ops {

// How products with x are made, where the device can do both: x as it is, or rounded to eight bits by 32 columns, which
// reads the codes as the whole numbers that they are and is several times as fast. Backward passes are exact.
enum class Products { Exact, Int8 };

// [rows, columns] of this type, which products are made in, on this device.
at::Tensor quantised_tensor(std::shared_ptr<const quant::Matrix> matrix, at::ScalarType type, c10::Device device,
                            Products products = Products::Exact);

// Matrices that are one parameter, as experts are: of these sizes, whose last two are a matrix's. A device that keeps
// codes in an order of its own keeps all of them together there, or, where they are not alike, plain ones; on others
// each is a weight of its own.
struct StackEntry {
  std::shared_ptr<const quant::Matrix> matrix;
  at::Tensor plain;  // or this, of the stack's type and on its device
};
at::Tensor quantised_stack(int64_t count, const std::function<StackEntry(int64_t)>& entry, at::IntArrayRef sizes,
                           at::ScalarType type, c10::Device device, Products products = Products::Exact);
// One of them, as a weight.
at::Tensor matrix_in(const at::Tensor& stack, int64_t index);

// Whether the device has products of its own with codes for weights of this type, which are as fast as
// those with plain weights.
bool multiplies_codes(c10::Device device, at::ScalarType type);

bool is_quantised(const at::Tensor& weight);
// Null: a plain tensor, or one that the device keeps in its own order.
const quant::Matrix* matrix_of(const at::Tensor& weight);
// What pack_codes made of it; null: the device has no order of its own for it, or it is a plain one.
const at::Tensor* codes_of(const at::Tensor& weight);
// Whether the bytes of the format itself are read still: of a matrix; of the index-th matrix of a stack.
bool in_its_format(const at::Tensor& weight, int64_t index);
// What it takes in memory, or in mapped files; a plain one too.
int64_t held_bytes(const at::Tensor& weight);

// Rows of a weight (of a stack: entries of its first dimension), quantised or plain, of its type and on its device: new
// memory, or a view of a plain one.
at::Tensor plain_rows(const at::Tensor& weight, int64_t row, int64_t count);
inline at::Tensor plain(const at::Tensor& weight) { return plain_rows(weight, 0, weight.size(0)); }
// Of a matrix that no tensor holds.
at::Tensor dequantised(const quant::Matrix& matrix, int64_t row, int64_t count, at::ScalarType type);

// Rows of a table that is quantised.
at::Tensor quantised_embedding(const at::Tensor& id, const at::Tensor& weight);

// What ops::linear does with such a weight.
at::Tensor quantised_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& known);

// Rows in runs, each run times a matrix of a quantised stack [E, ..., I] (ops::grouped_linear): y [M, O], where O
// counts all rows of an entry of its first dimension.
at::Tensor quantised_grouped_linear(const at::Tensor& x_MI, const at::Tensor& stack, const at::Tensor& ends_E);

}  // namespace apus::ops
