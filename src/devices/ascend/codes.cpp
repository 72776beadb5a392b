// SPDX-License-Identifier: Apache-2.0
// Linear layers and tables whose weights are held as codes (ops/quantised.h), in the device's memory. The vendor's
// product takes whole numbers of four and eight bits; other weights are made plain there, a part at a time.
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "devices/ascend/code_order.h"
#include "devices/ascend/offered.h"
#include "devices/ascend/ops.h"
#include "devices/code_tensor.h"
#include "devices/vendor_op.h"
#include "ops/expert_pairs.h"
#include "ops/op.h"
#include "ops/quantised.h"

namespace apus::ascend {

namespace {

// That are made plain at a time: 64 MB, and three times while it is done.
constexpr int64_t kPlainNumbers = int64_t{1} << 24;

const CodeOrder& held_in(const at::Tensor& codes) { return codes_in<CodeOrder>(codes); }

bool multiplies_whole_numbers() {
  static const bool can = [] {
    const std::string chip = soc_name();
    for (const char* name : {"npu::npu_dynamic_quant", "npu::npu_quant_matmul"})
      if (!VendorOp(name).present(c10::DispatchKey::PrivateUse1) || !lacking(name, chip).empty()) return false;
    return true;
  }();
  return can;
}

at::Tensor pack_codes(const at::Tensor& weight, bool int8) {
  const quant::Matrix* const matrix = ops::matrix_of(weight);
  require(matrix, Fault::Bug, "pack_codes: the weight is not quantised");
  const int64_t experts = weight.dim() > 2 ? weight.size(0) : 0;
  CodeOrder order = CodeOrder::of(*matrix, weight.scalar_type(), experts, int8 && multiplies_whole_numbers());
  if (order.pieces.empty()) return at::empty({0}, at::kByte);
  order.move_to(weight.device());
  const int64_t bytes = order.bytes();
  return code_tensor(std::move(order), bytes, weight.device());
}

int64_t rows_at_once(const CodeOrder& held) { return std::max<int64_t>(32, kPlainNumbers / held.columns / 32 * 32); }

// Rows of a piece, [count, columns].
at::Tensor plain_part(const CodeOrder& held, const CodeOrder::Piece& piece, int64_t row, int64_t count) {
  const int64_t step = rows_at_once(held);
  std::vector<at::Tensor> parts;
  for (int64_t at = row; at < row + count; at += step)
    parts.push_back(held.plain(piece, at, std::min(step, row + count - at)).to(held.type));
  return (parts.size() == 1 ? parts[0] : at::cat(parts, 1)).t();
}

at::Tensor plain_codes(const at::Tensor& codes, int64_t row, int64_t count) {
  const CodeOrder& held = held_in(codes);
  require(row + count <= held.rows, Fault::Bug, "plain_codes: rows ", row, " to ", row + count, " of ", held.rows);
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const CodeOrder::Piece& piece : held.pieces) {
    const int64_t begin = std::max(row, first), end = std::min(row + count, first + piece.rows);
    if (begin < end) parts.push_back(plain_part(held, piece, begin - first, end - begin));
    first += piece.rows;
  }
  return parts.empty()       ? at::empty({0, held.columns}, held.pieces[0].scale.options().dtype(held.type))
         : parts.size() == 1 ? parts[0].contiguous()
                             : at::cat(parts);
}

at::Tensor coded_embedding(const at::Tensor& id, const at::Tensor& codes) {
  const CodeOrder& held = held_in(codes);
  std::vector<int64_t> sizes = id.sizes().vec();
  sizes.push_back(held.columns);
  const at::Tensor ids = id.to(held.pieces[0].code.device(), at::kLong).reshape({-1});
  if (ids.numel() == 0) return at::empty(sizes, held.pieces[0].scale.options().dtype(held.type));
  return held.plain_rows(ids).to(held.type).contiguous().view(sizes);
}

// x [m, columns] -> [m, rows].
at::Tensor multiplied(const CodeOrder& held, const CodeOrder::Piece& piece, const at::Tensor& x,
                      const at::Tensor& bias) {
  static const VendorOp op("npu::npu_weight_quant_batchmatmul");
  const at::Tensor code = held.bits == 4 ? piece.code.view(at::kInt) : piece.code;
  // Offsets are always given: without them the product of four bits is another one.
  VendorOp::Named named{{"antiquant_offset", piece.offset}, {"antiquant_group_size", held.group}};
  if (bias.defined()) {
    at::Tensor filled = bias.to(held.type == at::kHalf ? at::kHalf : at::kFloat);
    if (const int64_t more = piece.scale.size(1) - filled.numel(); more > 0)
      filled = at::cat({filled, at::zeros({more}, filled.options())});
    named.push_back({"bias", filled.contiguous()});
  }
  return tensor(op({x, code, piece.scale}, named)[0]).narrow(1, 0, piece.rows);
}

// The same of x rounded to eight bits.
at::Tensor rounded(const CodeOrder& held, const CodeOrder::Piece& piece, const at::Tensor& x, const at::Tensor& bias) {
  static const VendorOp round("npu::npu_dynamic_quant"), op("npu::npu_quant_matmul");
  const auto whole = round({x});  // int8, and the scale of each row
  VendorOp::Named named{{"pertoken_scale", whole[1]}, {"output_dtype", static_cast<int64_t>(held.type)}};
  if (bias.defined()) {
    const at::Tensor wide = bias.to(at::kFloat);
    const int64_t more = piece.scale.size(1) - wide.numel();
    named.push_back({"bias", more > 0 ? at::cat({wide, at::zeros({more}, wide.options())}) : wide.contiguous()});
  }
  return tensor(op({whole[0], piece.code, piece.scale.view({-1})}, named)[0]).narrow(1, 0, piece.rows);
}

at::Tensor made_plain(const CodeOrder& held, const CodeOrder::Piece& piece, const at::Tensor& x,
                      const at::Tensor& bias) {
  const int64_t step = rows_at_once(held);
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < piece.rows; row += step) {
    const int64_t count = std::min(step, piece.rows - row);
    parts.push_back(at::linear(x, plain_part(held, piece, row, count),
                               maybe(bias.defined() ? bias.narrow(0, row, count) : at::Tensor())));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, 1);
}

at::Tensor coded_linear(const at::Tensor& x, const at::Tensor& codes, const OptionalTensor& bias_in) {
  const CodeOrder& held = held_in(codes);
  require(x.scalar_type() == held.type && x.size(-1) == held.columns, Fault::Bug, "coded_linear: x is ",
          c10::toString(x.scalar_type()), " with ", x.size(-1), " columns, the weight ", c10::toString(held.type),
          " with ", held.columns);
  const at::Tensor bias = or_undefined(bias_in);
  require(!bias.defined() || (bias.numel() == held.rows && bias.scalar_type() == held.type), Fault::Bug,
          "coded_linear: bias of another size or type");
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = held.rows;
  if (x.numel() == 0) return at::empty(sizes, x.options());
  const at::Tensor rows = x.reshape({-1, held.columns}).contiguous();
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (const CodeOrder::Piece& piece : held.pieces) {
    const at::Tensor part = bias.defined() ? bias.narrow(0, first, piece.rows) : at::Tensor();
    parts.push_back((held.rounds ? rounded : held.multiplied ? multiplied : made_plain)(held, piece, rows, part));
    first += piece.rows;
  }
  return (parts.size() == 1 ? parts[0] : at::cat(parts, 1)).reshape(sizes);
}

// Few rows, each by the matrix of its expert.
at::Tensor of_chosen(const CodeOrder& held, const at::Tensor& x, const at::Tensor& ends) {
  const at::Tensor expert = ops::expert_of_rows(x.size(0), ends);
  return at::bmm(x.unsqueeze(1), held.plain_experts(expert).to(held.type)).squeeze(1);
}

at::Tensor plain_stack(const CodeOrder& held) {
  const int64_t experts = std::ssize(held.pieces), rows = held.stack.rows,
                step = std::max<int64_t>(1, kPlainNumbers / (held.columns * rows));
  const at::Tensor all = at::empty({experts, held.columns, rows}, held.stack.scale.options().dtype(held.type));
  for (int64_t e = 0; e < experts; e += step) {
    const int64_t count = std::min(step, experts - e);
    all.narrow(0, e, count).copy_(held.plain_experts(e, count));
  }
  return all;
}

// x [m, columns] in runs, each for an expert's rows of the weight.
at::Tensor coded_grouped_linear(const at::Tensor& x_in, const at::Tensor& codes, const at::Tensor& ends, int64_t rows) {
  static const VendorOp op("npu::npu_grouped_matmul");
  const CodeOrder& held = held_in(codes);
  const at::Tensor x = x_in.contiguous();
  require(x.scalar_type() == held.type && x.size(1) == held.columns && held.stack.code.defined() &&
              held.stack.rows == rows && std::ssize(held.pieces) == ends.size(0),
          Fault::Bug, "coded_grouped_linear: ", ends.size(0), " times ", rows, " rows of ", held.rows);
  if (x.size(0) == 0) return at::empty({0, rows}, x.options());
  if (!held.multiplied_together && x.size(0) < ends.size(0)) return of_chosen(held, x, ends);
  VendorOp::Named named{{"group_list", ends}, {"split_item", 2}, {"group_type", 0}, {"group_list_type", 0}};
  at::Tensor weight;
  if (held.multiplied_together) {
    weight = held.bits == 4 ? held.stack.code.view(at::kInt) : held.stack.code;
    const auto numbers = [&](const at::Tensor& t) {
      return std::vector<at::Tensor>{held.group == 0 ? t.squeeze(1) : t};
    };
    named.push_back({"antiquant_scale", numbers(held.stack.scale)});
    named.push_back({"antiquant_offset", numbers(held.stack.offset)});
  } else {
    weight = plain_stack(held);
  }
  return op({std::vector<at::Tensor>{x}, std::vector<at::Tensor>{weight}}, named)[0].toTensorVector()[0];
}

}  // namespace

std::vector<NativeOp> code_ops() {
  const std::vector<std::string> vendor{"npu::npu_weight_quant_batchmatmul"};
  return {native<pack_codes>("pack_codes", vendor), native<coded_linear>("coded_linear", vendor),
          native<coded_grouped_linear>("coded_grouped_linear", {vendor[0], "npu::npu_grouped_matmul"}),
          native<coded_embedding>("coded_embedding", vendor), native<plain_codes>("plain_codes", vendor)};
}

}  // namespace apus::ascend
