// SPDX-License-Identifier: Apache-2.0
#include "nn/boft.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/random.h"
#include "ops/ops.h"
#include "tensor/noise.h"

namespace apus {
namespace {

// The i-th factor's order, and the order that undoes it. Of a single factor nothing is moved.
std::vector<int64_t> butterfly_of(const Boft::Spec& spec, int64_t i) {
  return butterfly_order(spec.in, spec.blocks() >> i, spec.block / 2);
}

at::Tensor reordered(const at::Tensor& x_TI, const std::vector<int64_t>& order) {
  return at::index_select(x_TI, 1, at::tensor(order, x_TI.options().dtype(at::kLong)));
}

std::vector<int64_t> order_back(const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

// x P B P' of one factor.
at::Tensor through_blocks(const at::Tensor& x_TI, const at::Tensor& blocks_DHH, const Boft::Spec& spec, int64_t i) {
  const bool moves = spec.factors > 1;
  const auto order = moves ? butterfly_of(spec, i) : std::vector<int64_t>();
  const at::Tensor x = moves ? reordered(x_TI, order_back(order)) : x_TI;
  const at::Tensor y =
      at::bmm(x.reshape({x.size(0), spec.blocks(), spec.block}).transpose(0, 1), blocks_DHH).transpose(0, 1);
  return moves ? reordered(y.reshape(x.sizes()), order) : y.reshape(x.sizes());
}

}  // namespace

std::vector<int64_t> butterfly_order(int64_t n, int64_t groups, int64_t half) {
  const int64_t size = n / groups, pieces = size / half;
  std::vector<int64_t> order;
  for (int64_t group = 0; group < groups; ++group)
    for (const int64_t odd : {0, 1})
      for (int64_t piece = odd; piece < pieces; piece += 2)
        for (int64_t i = 0; i < half; ++i) order.push_back(group * size + piece * half + i);
  return order;
}

at::Tensor cayley_blocks(const at::Tensor& trained) {
  const at::Tensor wide = trained.to(at::kFloat), skew = (wide - wide.transpose(-1, -2)) * 0.5;
  const at::Tensor one = at::eye(wide.size(-1), wide.options().requires_grad(false));
  return at::linalg_solve(one + skew, (one - skew).contiguous(), /*left=*/false);
}

Boft::Boft(Spec spec, const Param* bias)
    : spec_(spec),
      bias_(bias),
      rotation_(param("boft_R", {spec.factors, spec.blocks(), spec.block, spec.block})),
      scale_(param("boft_s", {spec.out, 1})) {}

at::Tensor Boft::rotated(const at::Tensor& x_TI) const {
  const at::Tensor blocks = (settled_.defined() ? settled_ : cayley_blocks(rotation_.data)).to(x_TI.scalar_type());
  at::Tensor x = x_TI;
  for (int64_t i = spec_.factors; i-- > 0;) x = through_blocks(x, blocks.select(0, i), spec_, i);
  return x;
}

at::Tensor Boft::apply(const at::Tensor& x_TI, const at::Tensor& /*y_TO*/, const at::Tensor& weight, const Step&,
                       Memo* /*memo*/) const {
  const at::Tensor y = ops::linear(rotated(x_TI), weight, {}) * scale_.data.to(x_TI.scalar_type()).squeeze(1);
  return bias_ ? y + bias_->data : y;
}

std::pair<at::Tensor, at::Tensor> Boft::columns(const at::Tensor& /*x_TI*/, const Step&) const {
  fail(Fault::Bug, "a rotation is no product of low rank");
}

// W R' of some rows, scaled: the transposed factors in the other order.
at::Tensor Boft::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  const at::Tensor blocks = cayley_blocks(rotation_.data).transpose(-1, -2);
  at::Tensor w = rows.to(at::kFloat);
  for (int64_t i = 0; i < spec_.factors; ++i) w = through_blocks(w, blocks.select(0, i), spec_, i);
  return w * scale_.data.to(at::kFloat).narrow(0, first, rows.size(0));
}

void Boft::begin(Adaptable& /*layer*/, const std::string& how, uint64_t seed, at::TensorOptions options) {
  if (how == "false") {
    rotation_.data = normal_noise(rotation_.full, 0, 0.1, mix(seed, spec_.id, 1)).to(options);
    scale_.data = normal_noise(scale_.full, 1, 0.1, mix(seed, spec_.id, 2)).to(options);
  } else {
    rotation_.data = at::zeros(rotation_.full, options), scale_.data = at::ones(scale_.full, options);
  }
}

void Boft::settle(const at::Tensor& /*weight*/, at::ScalarType type) {
  at::NoGradGuard no_grad;
  settled_ = cayley_blocks(rotation_.data).to(type);
  scale_.data = scale_.data.to(type);
}

}  // namespace apus
