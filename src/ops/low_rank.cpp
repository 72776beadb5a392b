// SPDX-License-Identifier: Apache-2.0
#include "ops/low_rank.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "ops/op.h"

namespace apus::ops {
namespace {

using Triple = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor add(at::Tensor& y, const at::Tensor& x, const at::Tensor& a, const at::Tensor& b, double scale) {
  const at::Tensor h = matmul(x, a.to(x.scalar_type()).t()), up = b.to(x.scalar_type()).t();
  if (has_matmul(x))
    y.addmm_(h, up, 1, scale);
  else
    y.add_(matmul(h, up), scale);
  return h;
}

Triple backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& h, const at::Tensor& a,
                const at::Tensor& b, double scale, std::array<bool, 3> need) {
  const at::Tensor dh = matmul(dy, b.to(dy.scalar_type())).mul_(scale);
  at::Tensor dx, da, db;
  if (need[0]) dx = matmul(dh, a.to(dh.scalar_type()));
  if (need[1]) da = widen(matmul(dh.t(), x)).to(a.scalar_type());
  if (need[2]) db = widen(matmul(dy.t(), h)).mul_(scale).to(b.scalar_type());
  return {dx, da, db};
}

at::Tensor shape(at::Tensor&, const at::Tensor& x, const at::Tensor& a, const at::Tensor&, double) {
  return at::empty({x.size(0), a.size(0)}, x.options());
}
Triple backward_shape(const at::Tensor& dy, const at::Tensor& x, const at::Tensor&, const at::Tensor& a,
                      const at::Tensor& b, double, std::array<bool, 3> need) {
  const auto like = [](bool wanted, const at::Tensor& t, const at::Tensor& type) {
    return wanted ? at::empty(t.sizes(), type.options()) : at::Tensor();
  };
  return {like(need[0], x, dy), like(need[1], a, a), like(need[2], b, b)};
}

}  // namespace

at::Tensor add_low_rank(at::Tensor& y_TO, const at::Tensor& x_TI, const at::Tensor& a_RI, const at::Tensor& b_OR,
                        double scale) {
  static const auto op = handle<decltype(add)>("apus::add_low_rank");
  const BelowAutograd guard;
  return op.call(y_TO, x_TI, a_RI, b_OR, scale);
}

Triple low_rank_backward(const at::Tensor& dy_TO, const at::Tensor& x_TI, const at::Tensor& h_TR,
                         const at::Tensor& a_RI, const at::Tensor& b_OR, double scale, std::array<bool, 3> need) {
  static const auto op = handle<decltype(backward)>("apus::low_rank_backward");
  const BelowAutograd guard;
  return op.call(dy_TO, x_TI, h_TR, a_RI, b_OR, scale, need);
}

}  // namespace apus::ops

TORCH_LIBRARY_FRAGMENT(apus, m) {
  m.def("add_low_rank(Tensor(a!) y, Tensor x, Tensor a, Tensor b, float scale) -> Tensor");
  m.def(
      "low_rank_backward(Tensor dy, Tensor x, Tensor h, Tensor a, Tensor b, float scale, bool[3] need) -> "
      "(Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(apus, CompositeExplicitAutograd, m) {
  m.impl("add_low_rank", apus::ops::add);
  m.impl("low_rank_backward", apus::ops::backward);
}
TORCH_LIBRARY_IMPL(apus, Meta, m) {
  m.impl("add_low_rank", apus::ops::shape);
  m.impl("low_rank_backward", apus::ops::backward_shape);
}
