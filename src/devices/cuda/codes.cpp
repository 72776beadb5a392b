// SPDX-License-Identifier: Apache-2.0
// Linear layers and tables whose weights are held as codes (ops/quantised.h). Few rows are multiplied by the codes as
// they are; for many the weight is made plain, a part at a time where it is large, and multiplied by cuBLAS.
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "devices/code_tensor.h"
#include "devices/cuda/code_order.h"
#include "devices/cuda/ops.h"
#include "devices/cuda/typed.h"
#include "ops/expert_pairs.h"
#include "ops/op.h"
#include "ops/quantised.h"

namespace apus::cuda {

namespace {

constexpr int64_t kRowsOfProduct = 64;               // up to here codes are multiplied as they are
constexpr int64_t kRowsOfRun = 16;                   // as many in each run, in the mean
constexpr int64_t kMostBlocks = 65535;               // in y of a grid
constexpr int64_t kPlainBytes = int64_t{256} << 20;  // that are made plain at a time

struct HeldCodes {
  CodeOrder order;
  at::Tensor packed;
  at::ScalarType type;  // of the weight

  KernelCodes kernel() const { return order.at(packed.data_ptr()); }
  int64_t columns() const { return order.columns; }
};

const HeldCodes& held_in(const at::Tensor& codes) { return codes_in<HeldCodes>(codes); }

// Products are exact: there is nothing to gain from eight bits.
at::Tensor pack_codes(const at::Tensor& weight, bool) {
  const quant::Matrix* const matrix = ops::matrix_of(weight);
  require(matrix, Fault::Bug, "pack_codes: the weight is not quantised");
  auto order = is_narrow_or_float(weight.scalar_type()) ? CodeOrder::of(*matrix, weight.scalar_type() == at::kFloat)
                                                        : std::nullopt;
  const bool tiles = weight.dim() == 2 || matrix->shape().rows / weight.size(0) % 16 == 0;  // an expert's are its own
  if (!order || !tiles) return at::empty({0}, at::kByte);
  const at::Tensor host = at::empty({order->bytes}, at::kByte);
  order->pack(*matrix, host.data_ptr<uint8_t>(),
              [](int64_t count, const auto& f) { at::parallel_for(0, count, 1, f); });
  return code_tensor(HeldCodes{*order, host.to(weight.device()), weight.scalar_type()}, order->bytes, weight.device());
}

at::Tensor plain_of(const HeldCodes& held, int64_t row, int64_t count) {
  static const TypedKernel kernels[] = {
      {"codes", "plain", ", 0"}, {"codes", "plain", ", 1"}, {"codes", "plain", ", 2"}, {"codes", "plain", ", 3"}};
  const at::Tensor y = at::empty({count, held.columns()}, held.packed.options().dtype(held.type));
  if (count > 0)
    kernels[held.order.kind].of(held.type)(Extent{(count + 15) / 16}, Extent{256}, held.kernel(),
                                           static_cast<long long>(row), static_cast<long long>(count), address(y));
  return y;
}

at::Tensor plain_codes(const at::Tensor& codes, int64_t row, int64_t count) {
  const HeldCodes& held = held_in(codes);
  require(row % 16 == 0 && row + count <= held.order.rows, Fault::Bug, "plain_codes: rows ", row, " to ", row + count,
          " of ", held.order.rows);
  return plain_of(held, row, count);
}

at::Tensor coded_embedding(const at::Tensor& id, const at::Tensor& codes) {
  static const TypedKernel kernels[] = {{"codes", "rows_of", ", 0"},
                                        {"codes", "rows_of", ", 1"},
                                        {"codes", "rows_of", ", 2"},
                                        {"codes", "rows_of", ", 3"}};
  const HeldCodes& held = held_in(codes);
  std::vector<int64_t> sizes = id.sizes().vec();
  sizes.push_back(held.columns());
  const at::Tensor ids = id.to(held.packed.device(), at::kLong).contiguous(),
                   y = at::empty(sizes, held.packed.options().dtype(held.type));
  if (ids.numel() > 0)
    kernels[held.order.kind].of(held.type)(Extent{ids.numel()}, Extent{128}, held.kernel(), address(ids), address(y));
  return y;
}

// For each order of codes, of 8, 16 or 32 rows of x.
class ProductKernels {
 public:
  explicit ProductKernels(const char* name) {
    for (int kind = 0; kind < 4; ++kind)
      for (int scales = 0; scales < 4; ++scales)
        for (const int n : {1, 2, 4})
          all_.push_back(std::make_unique<TypedKernel>("codes", name, str(", ", kind, ", ", scales, ", ", n)));
  }
  const Kernel& of(const HeldCodes& held, int tiles) const {
    const CodeOrder& order = held.order;
    const int scales = (order.zeros || order.leasts ? 1 : 0) + (order.wide ? 2 : 0);
    return all_[static_cast<size_t>((order.kind * 4 + scales) * 3 + tiles / 2)]->of(held.type);
  }

 private:
  std::vector<std::unique_ptr<TypedKernel>> all_;
};

// More rows of x are read more often: then several tiles of the weight share what the nearest cache has of them.
int64_t tiles_together(int64_t tiles, int of_x) { return of_x == 1 || tiles < 256 ? 1 : 4; }

// Of whole stretches, which kernels read in packs.
at::Tensor filled(const at::Tensor& x, const CodeOrder& order) {
  const int64_t size = order.stretches * order.stretch();
  if (size == order.columns) return in_packs(x) ? x : x.contiguous();
  const at::Tensor more = at::zeros({x.size(0), size}, x.options());
  more.narrow(1, 0, order.columns).copy_(x);
  return more;
}

// x [m, columns].
at::Tensor few_products(const HeldCodes& held, const at::Tensor& x_in, const at::Tensor& bias) {
  static const ProductKernels kernels("product");
  const at::Tensor x = filled(x_in, held.order);
  const int64_t m = x.size(0), tiles = held.order.tiles();
  const at::Tensor y = at::empty({m, held.order.rows}, x.options());
  const int of_x = m <= 8 ? 1 : m <= 16 ? 2 : 4;
  const int64_t together = tiles_together(tiles, of_x);
  kernels.of(held, of_x)(Extent{(tiles + together - 1) / together, (m + 8 * of_x - 1) / (8 * of_x)}, Extent{256},
                         held.kernel(), address(x), static_cast<long long>(x.stride(0)), address(bias), address(y),
                         static_cast<int>(m), static_cast<int>(together));
  return y;
}

at::Tensor many_products(const HeldCodes& held, const at::Tensor& x, const OptionalTensor& bias) {
  const int64_t rows = held.order.rows, row_bytes = held.columns() * static_cast<int64_t>(c10::elementSize(held.type)),
                step = std::max<int64_t>(16, kPlainBytes / row_bytes / 16 * 16);
  if (rows <= step) return at::linear(x, plain_of(held, 0, rows), bias);
  const at::Tensor y = at::empty({x.size(0), rows}, x.options());
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    const OptionalTensor part = bias.has_value() ? OptionalTensor(bias->narrow(0, row, count)) : bias;
    y.narrow(1, row, count).copy_(at::linear(x, plain_of(held, row, count), part));
  }
  return y;
}

at::Tensor coded_linear(const at::Tensor& x, const at::Tensor& codes, const OptionalTensor& bias_in) {
  const HeldCodes& held = held_in(codes);
  require(x.scalar_type() == held.type && x.size(-1) == held.columns(), Fault::Bug, "coded_linear: x is ",
          c10::toString(x.scalar_type()), " with ", x.size(-1), " columns, the weight ", c10::toString(held.type),
          " with ", held.columns());
  const OptionalTensor bias =
      bias_in.has_value() && bias_in->defined() ? OptionalTensor(bias_in->contiguous()) : OptionalTensor();
  require(!bias.has_value() || (bias->numel() == held.order.rows && bias->scalar_type() == held.type), Fault::Bug,
          "coded_linear: bias of another size or type");
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = held.order.rows;
  if (x.numel() == 0) return at::empty(sizes, x.options());
  const at::Tensor rows = x.reshape({-1, held.columns()});
  const bool few = rows.size(0) <= kRowsOfProduct && held.type != at::kFloat;
  return (few ? few_products(held, rows, bias.value_or(at::Tensor())) : many_products(held, rows, bias)).view(sizes);
}

// x [m, columns] in runs, each for `rows` rows of the weight.
at::Tensor few_in_runs(const HeldCodes& held, const at::Tensor& x_in, const at::Tensor& ends, int64_t rows) {
  static const ProductKernels kernels("product_in_runs");
  const at::Tensor x = filled(x_in, held.order), y = at::empty({x.size(0), rows}, x.options());
  const int64_t m = x.size(0), experts = ends.size(0), tiles = rows / 16;
  const int of_x = m <= 4 * experts ? 1 : m <= 8 * experts ? 2 : 4;
  const int64_t together = tiles_together(tiles, of_x);
  kernels.of(held, of_x)(Extent{(tiles + together - 1) / together, m}, Extent{256}, held.kernel(), address(x),
                         static_cast<long long>(x.stride(0)), address(ends), static_cast<int>(experts),
                         static_cast<int>(rows), address(y), static_cast<int>(together));
  return y;
}

at::Tensor coded_grouped_linear(const at::Tensor& x, const at::Tensor& codes, const at::Tensor& ends_in, int64_t rows) {
  const HeldCodes& held = held_in(codes);
  const at::Tensor ends = ends_in.to(at::kLong).contiguous();
  require(x.scalar_type() == held.type && x.size(1) == held.columns() && ends.size(0) * rows == held.order.rows &&
              rows % 16 == 0,
          Fault::Bug, "coded_grouped_linear: x is ", c10::toString(x.scalar_type()), " with ", x.size(1),
          " columns, the weight ", c10::toString(held.type), " with ", held.columns(), ", ", ends.size(0), " times ",
          rows, " rows of ", held.order.rows);
  if (x.size(0) == 0) return at::empty({0, rows}, x.options());
  if (x.size(0) <= kRowsOfRun * ends.size(0) && x.size(0) <= kMostBlocks && held.type != at::kFloat)
    return few_in_runs(held, x, ends, rows);
  return ops::grouped_linear(x, plain_of(held, 0, held.order.rows).view({ends.size(0), rows, held.columns()}), ends);
}

}  // namespace

std::vector<OwnOp> code_ops() {
  return {own<pack_codes>("pack_codes", kOwnKernel), own<coded_linear>("coded_linear", kOwnKernel),
          own<coded_grouped_linear>("coded_grouped_linear", kOwnKernel),
          own<coded_embedding>("coded_embedding", kOwnKernel), own<plain_codes>("plain_codes", kOwnKernel)};
}

}  // namespace apus::cuda
