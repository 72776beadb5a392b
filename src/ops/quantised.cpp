// SPDX-License-Identifier: Apache-2.0
// x W' + b with a weight that is held quantised: tiles of it are made plain in the type of the product, multiplied and
// dropped, in the forward and again in the backward pass, which needs neither the input nor the whole weight. A device
// with an order of its own for codes does so in the operators pack_codes, coded_linear and plain_codes.
#include "ops/quantised.h"

#include <ATen/OpaqueTensorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "quant/narrow.h"
#include "quant/row_stack.h"

namespace apus::ops {
namespace {

// One of the three.
struct Held {
  std::shared_ptr<const quant::Matrix> matrix;
  at::Tensor codes;
  std::vector<at::Tensor> stack;  // each a weight of its own
  int64_t row = -1;               // from which on rows of `codes` are this weight; -1: all are
};
using Impl = at::OpaqueTensorImpl<Held>;

// Null: a plain tensor.
Impl* held_in(const at::Tensor& weight) {
  if (!weight.defined() || weight.has_storage()) return nullptr;
  return dynamic_cast<Impl*>(weight.unsafeGetTensorImpl());
}
const std::vector<at::Tensor>* stack_of(const at::Tensor& weight) {
  Impl* const impl = held_in(weight);
  return impl && !impl->opaque_handle().stack.empty() ? &impl->opaque_handle().stack : nullptr;
}

at::Tensor no_codes(const at::Tensor&, bool) { return at::empty({0}, at::kByte); }
[[noreturn]] void no_coded(const at::Tensor& codes) {
  fail(Fault::Bug, "this device keeps no codes in an order of its own (", codes.numel(),
       " bytes given); pack_codes says so");
}
at::Tensor coded_linear_reference(const at::Tensor&, const at::Tensor& codes, const OptionalTensor&) {
  no_coded(codes);
}
at::Tensor coded_embedding_reference(const at::Tensor&, const at::Tensor& codes) { no_coded(codes); }
at::Tensor plain_codes_reference(const at::Tensor& codes, int64_t, int64_t) { no_coded(codes); }

constexpr int64_t kRowsAtOnce = 32;                  // of a thread
constexpr int64_t kTileElements = int64_t{1} << 20;  // two or four MB: it stays in a cache
constexpr int64_t kLargeTile = int64_t{1} << 27;     // of a device that gains from large products: most weights are one

int64_t tile_rows(const at::Tensor& weight) {
  const int64_t elements = weight.device().is_cpu() ? kTileElements : kLargeTile;
  const int64_t rows = elements / weight.size(1) / kRowsAtOnce * kRowsAtOnce;
  return std::max(kRowsAtOnce, rows);
}

void narrow_to(const float* from, int64_t count, at::ScalarType type, char* out, int64_t at) {
  if (type == at::kBFloat16)
    quant::to_bf16(from, count, reinterpret_cast<uint16_t*>(out) + at);
  else
    quant::to_f16(from, count, reinterpret_cast<uint16_t*>(out) + at);
}

template <class F>
void each_tile(const at::Tensor& weight, const F& f) {
  const int64_t rows = weight.size(0), step = tile_rows(weight);
  for (int64_t row = 0; row < rows; row += step) f(row, std::min(step, rows - row));
}

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  static const auto coded = handle<decltype(coded_linear_reference)>("apus::coded_linear");
  if (const at::Tensor* codes = codes_of(weight); codes && held_in(weight)->opaque_handle().row < 0) {
    const BelowAutograd guard;
    return coded.call(x, *codes, maybe(bias));
  }
  const int64_t out = weight.size(0);
  if (out <= tile_rows(weight)) return linear(x, plain(weight), bias);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = out;
  at::Tensor y = at::empty(sizes, x.options());
  each_tile(weight, [&](int64_t row, int64_t count) {
    const at::Tensor part = bias.defined() ? bias.narrow(0, row, count) : at::Tensor();
    y.narrow(-1, row, count).copy_(linear(x, plain_rows(weight, row, count), part));
  });
  return y;
}

// Sums over tiles in at least f32, rounded once.
at::Tensor input_gradient(const at::Tensor& grad, const at::Tensor& weight) {
  static const auto op = handle<std::tuple<at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, const OptionalTensor&, const OptionalTensor&, std::array<bool, 3>)>("apus::linear_backward");
  const auto product = [&](const at::Tensor& part, const at::Tensor& tile) {
    return std::get<0>(op.call(part, kNone, tile, {true, false, false}));
  };
  if (weight.size(0) <= tile_rows(weight)) return product(grad, plain(weight));
  std::vector<int64_t> sizes = grad.sizes().vec();
  sizes.back() = weight.size(1);
  at::Tensor sum = at::zeros(sizes, grad.options().dtype(wide_type(grad)));
  each_tile(weight, [&](int64_t row, int64_t count) {
    sum.add_(product(grad.narrow(-1, row, count).contiguous(), plain_rows(weight, row, count)));
  });
  return sum.to(grad.scalar_type());
}

// Wrapped, as neither is an input that a gradient could belong to.
struct Frozen {
  at::Tensor weight, known;
};

struct QuantisedNode : torch::autograd::Function<QuantisedNode> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, const OptionalTensor& bias,
                            const Frozen& frozen) {
    const BelowAutograd guard;
    ctx->saved_data["weight"] = frozen.weight;
    ctx->saved_data["bias"] = requires_grad(bias);
    return frozen.known.defined() ? frozen.known : ops::forward(x, frozen.weight, or_undefined(bias));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grad) {
    const BelowAutograd guard;
    const at::Tensor weight = ctx->saved_data["weight"].toTensor();
    at::Tensor dx, dbias;
    if (ctx->needs_input_grad(0)) dx = input_gradient(grad[0], weight);
    if (ctx->saved_data["bias"].toBool())
      dbias = rows_of(grad[0]).sum(0, /*keepdim=*/false, wide_type(grad[0])).to(grad[0].scalar_type());
    return {dx, dbias, {}};
  }
};

}  // namespace

namespace {
at::Tensor holding(Held held, at::ScalarType type, c10::Device device, at::IntArrayRef sizes) {
  return at::detail::make_tensor<Impl>(c10::DispatchKeySet(c10::computeDispatchKey(type, kNone, device)),
                                       c10::scalarTypeToTypeMeta(type), device, std::move(held), sizes);
}
}  // namespace

const at::Tensor* codes_of(const at::Tensor& weight) {
  Impl* const impl = held_in(weight);
  return impl && impl->opaque_handle().codes.defined() ? &impl->opaque_handle().codes : nullptr;
}

namespace {
// Undefined: the device keeps no codes of it.
at::Tensor packed(const at::Tensor& weight, Products products) {
  static const auto pack = handle<decltype(no_codes)>("apus::pack_codes");
  const BelowAutograd guard;
  const at::Tensor codes = pack.call(weight, products == Products::Int8);
  if (codes.numel() == 0) return {};
  return holding({.codes = codes}, weight.scalar_type(), weight.device(), weight.sizes());
}
}  // namespace

at::Tensor quantised_tensor(std::shared_ptr<const quant::Matrix> matrix, at::ScalarType type, c10::Device device,
                            Products products) {
  const int64_t sizes[] = {matrix->shape().rows, matrix->shape().columns};
  const at::Tensor weight = holding({.matrix = std::move(matrix)}, type, device, sizes),
                   codes = packed(weight, products);
  return codes.defined() ? codes : weight;
}

namespace {
using Matrices = std::vector<std::shared_ptr<const quant::Matrix>>;

// Empty: one of them is a plain one.
Matrices all_matrices(const std::vector<StackEntry>& entries) {
  Matrices all;
  for (const StackEntry& e : entries)
    if (e.matrix) all.push_back(e.matrix);
  return all.size() == entries.size() ? all : Matrices();
}

at::Tensor joined_stack(const std::vector<StackEntry>& entries, at::IntArrayRef sizes, at::ScalarType type,
                        c10::Device device) {
  Matrices matrices = all_matrices(entries);
  if (auto all = matrices.empty() ? nullptr : quant::row_stack(std::move(matrices)))
    if (at::Tensor codes = packed(holding({.matrix = all}, type, device, sizes), Products::Exact); codes.defined())
      return codes;
  at::Tensor plain_ones = at::empty(sizes, at::TensorOptions().dtype(type).device(device));
  const at::Tensor each = plain_ones.view({-1, sizes[sizes.size() - 2], sizes.back()});
  for (size_t i = 0; i < entries.size(); ++i) {
    const StackEntry& e = entries[i];
    each[static_cast<int64_t>(i)].copy_(e.matrix ? dequantised(*e.matrix, 0, e.matrix->shape().rows, type) : e.plain);
  }
  return plain_ones;
}
}  // namespace

at::Tensor quantised_stack(int64_t count, const std::function<StackEntry(int64_t)>& entry, at::IntArrayRef sizes,
                           at::ScalarType type, c10::Device device, Products products) {
  std::vector<StackEntry> entries;
  std::vector<at::Tensor> weights;
  for (int64_t i = 0; i < count; ++i) {
    StackEntry e = entry(i);
    if (!device.is_cpu())
      entries.push_back(std::move(e));
    else
      weights.push_back(e.matrix ? quantised_tensor(std::move(e.matrix), type, device, products) : e.plain);
  }
  return device.is_cpu() ? holding({.stack = std::move(weights)}, type, device, sizes)
                         : joined_stack(entries, sizes, type, device);
}

at::Tensor matrix_in(const at::Tensor& stack, int64_t index) {
  const Held& held = held_in(stack)->opaque_handle();
  if (!held.codes.defined()) return held.stack.at(static_cast<size_t>(index));
  const int64_t sizes[] = {stack.size(-2), stack.size(-1)};
  return holding({.codes = held.codes, .row = index * sizes[0]}, stack.scalar_type(), stack.device(), sizes);
}

bool multiplies_codes(c10::Device device, at::ScalarType type) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("apus::coded_linear", "");
  const bool narrow = type == at::kBFloat16 || (type == at::kHalf && !device.is_cpu());
  return narrow && op.hasKernelForDispatchKey(c10::computeDispatchKey(type, kNone, device));
}

bool is_quantised(const at::Tensor& weight) { return held_in(weight) != nullptr; }

const quant::Matrix* matrix_of(const at::Tensor& weight) {
  Impl* const impl = held_in(weight);
  return impl ? impl->opaque_handle().matrix.get() : nullptr;
}

bool in_its_format(const at::Tensor& weight, int64_t index) {
  if (const auto* stack = stack_of(weight)) return matrix_of((*stack)[static_cast<size_t>(index)]) != nullptr;
  return matrix_of(weight) != nullptr;
}

int64_t held_bytes(const at::Tensor& weight) {
  if (const at::Tensor* codes = codes_of(weight)) return codes->numel();
  if (const auto* stack = stack_of(weight)) {
    int64_t all = 0;
    for (const at::Tensor& matrix : *stack) all += held_bytes(matrix);
    return all;
  }
  const quant::Matrix* const matrix = matrix_of(weight);
  return matrix ? matrix->bytes() : static_cast<int64_t>(weight.nbytes());
}

at::Tensor dequantised(const quant::Matrix& matrix, int64_t row, int64_t count, at::ScalarType type) {
  const int64_t columns = matrix.shape().columns;
  at::Tensor out = at::empty({count, columns}, at::TensorOptions().dtype(type));
  const bool wide = type == at::kFloat;
  require(wide || type == at::kBFloat16 || type == at::kHalf, Fault::Bug, "a quantised weight of type ",
          c10::toString(type));
  char* const to = static_cast<char*>(out.data_ptr());
  at::parallel_for(0, (count + kRowsAtOnce - 1) / kRowsAtOnce, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> some(wide ? 0 : static_cast<size_t>(kRowsAtOnce * columns));
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kRowsAtOnce, n = std::min(kRowsAtOnce, count - first);
      if (wide) {
        matrix.dequantise(row + first, n, reinterpret_cast<float*>(to) + first * columns);
      } else {
        matrix.dequantise(row + first, n, some.data());
        narrow_to(some.data(), n * columns, type, to, first * columns);
      }
    }
  });
  return out;
}

at::Tensor plain_rows(const at::Tensor& weight, int64_t row, int64_t count) {
  static const auto plain_codes = handle<decltype(plain_codes_reference)>("apus::plain_codes");
  std::vector<int64_t> sizes = weight.sizes().vec();
  sizes[0] = count;
  if (const at::Tensor* codes = codes_of(weight)) {
    const BelowAutograd guard;
    const int64_t each = c10::multiply_integers(sizes.begin() + 1, sizes.end() - 1),
                  first = std::max<int64_t>(0, held_in(weight)->opaque_handle().row) + row * each,
                  before = first % kRowsAtOnce;  // codes are made plain from whole groups of rows on
    const at::Tensor rows = plain_codes.call(*codes, first - before, count * each + before);
    return (before == 0 ? rows : rows.narrow(0, before, count * each)).view(sizes);
  }
  if (const auto* stack = stack_of(weight)) {
    const int64_t each = std::ssize(*stack) / weight.size(0);
    std::vector<at::Tensor> matrices;
    for (int64_t i = row * each; i < (row + count) * each; ++i)
      matrices.push_back(plain((*stack)[static_cast<size_t>(i)]));
    return at::stack(matrices).view(sizes);
  }
  const quant::Matrix* matrix = matrix_of(weight);
  return matrix ? dequantised(*matrix, row, count, weight.scalar_type()).to(weight.device())
                : weight.narrow(0, row, count);
}

at::Tensor quantised_embedding(const at::Tensor& id, const at::Tensor& weight) {
  static const auto coded = handle<decltype(coded_embedding_reference)>("apus::coded_embedding");
  const BelowAutograd guard;
  if (const at::Tensor* codes = codes_of(weight)) return coded.call(id, *codes);
  std::vector<int64_t> sizes = id.sizes().vec();
  sizes.push_back(weight.size(1));
  const at::Tensor ids = id.flatten().to(at::kCPU, at::kLong).contiguous(),
                   out = at::empty({ids.numel(), weight.size(1)}, at::TensorOptions().dtype(weight.scalar_type()));
  for (int64_t i = 0; i < ids.numel(); ++i)
    out.narrow(0, i, 1).copy_(dequantised(*matrix_of(weight), ids.data_ptr<int64_t>()[i], 1, weight.scalar_type()));
  return out.to(weight.device()).view(sizes);
}

at::Tensor quantised_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& known) {
  if (any_requires_grad(x, bias)) return QuantisedNode::apply(x, maybe(bias), Frozen{weight, known});
  return known.defined() ? known : forward(x, weight, bias);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  // Of a weight that is held quantised: bytes that the others understand; none: this device keeps it as it is.
  m.def("pack_codes(Tensor weight, bool int8) -> Tensor");
  m.def("coded_linear(Tensor x, Tensor codes, Tensor? bias) -> Tensor");
  // The rows of ids.
  m.def("coded_embedding(Tensor id, Tensor codes) -> Tensor");
  // Rows of the weight from `row` on, a multiple of 32.
  m.def("plain_codes(Tensor codes, int row, int count) -> Tensor");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("pack_codes", apus::ops::no_codes);
  m.impl("coded_linear", apus::ops::coded_linear_reference);
  m.impl("coded_embedding", apus::ops::coded_embedding_reference);
  m.impl("plain_codes", apus::ops::plain_codes_reference);
}
