// SPDX-License-Identifier: Apache-2.0
// AdamW in one operator: torch's own fused one where this libtorch has it, else the vendor's.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <cmath>

#include "devices/ascend/ops.h"
#include "devices/vendor_op.h"
#include "ops/op.h"

namespace apus::ascend {

namespace {

using Adamw = void(at::Tensor&, const at::Tensor&, at::Tensor&, at::Tensor&, const OptionalTensor&, double, double,
                   double, double, double, int64_t, double, int64_t);

struct Hyper {
  double lr, beta1, beta2, eps, weight_decay;
  int64_t step;
};

// Both operators update one f32 tensor with f32 moments: the master, where there is one.
template <class Update>
void adamw(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
           const Hyper& h, double grad_scale, int64_t dither, const Update& update) {
  at::Tensor value = master.has_value() ? *master : param;
  const auto plain = [](const at::Tensor& t) { return t.scalar_type() == at::kFloat && t.is_contiguous(); };
  if (!plain(value) || !plain(m) || !plain(v)) {
    static const auto reference = ops::handle<Adamw>("apus::adamw");
    return ops::call_reference(reference, param, grad, m, v, master, h.lr, h.beta1, h.beta2, h.eps, h.weight_decay,
                               h.step, grad_scale, dither);
  }
  at::Tensor g = grad.to(at::kFloat);
  if (grad_scale != 1) g = g * grad_scale;
  update(value, g.contiguous(), m, v, h);
  if (master.has_value()) param.copy_(value);
}

void by_vendor(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
               double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, double grad_scale,
               int64_t dither) {
  static const VendorOp op("npu::npu_apply_adam_w.out");
  adamw(param, grad, m, v, master, {lr, beta1, beta2, eps, weight_decay, step}, grad_scale, dither,
        [](at::Tensor& value, const at::Tensor& g, at::Tensor& mean, at::Tensor& square, const Hyper& h) {
          const auto n = static_cast<double>(h.step);
          op({std::pow(h.beta1, n), std::pow(h.beta2, n), h.lr, h.weight_decay, h.beta1, h.beta2, h.eps, g,
              c10::IValue(), false, false},
             {{"var", value}, {"m", mean}, {"v", square}});
        });
}

void by_torch(at::Tensor& param, const at::Tensor& grad, at::Tensor& m, at::Tensor& v, const OptionalTensor& master,
              double lr, double beta1, double beta2, double eps, double weight_decay, int64_t step, double grad_scale,
              int64_t dither) {
  static const VendorOp op("aten::_fused_adamw_");
  adamw(param, grad, m, v, master, {lr, beta1, beta2, eps, weight_decay, step}, grad_scale, dither,
        [](at::Tensor& value, const at::Tensor& g, at::Tensor& mean, at::Tensor& square, const Hyper& h) {
          using List = std::vector<at::Tensor>;
          op({List{value}, List{g}, List{mean}, List{square}, List{},
              List{at::full({}, static_cast<double>(h.step), value.options())}},
             {{"lr", h.lr},
              {"beta1", h.beta1},
              {"beta2", h.beta2},
              {"weight_decay", h.weight_decay},
              {"eps", h.eps},
              {"amsgrad", false},
              {"maximize", false}});
        });
}

}  // namespace

std::vector<NativeOp> optimizer_ops() {
  return {native<by_torch>("adamw", {"aten::_fused_adamw_"}),
          native<by_vendor>("adamw", {"npu::npu_apply_adam_w.out"})};
}

}  // namespace apus::ascend
