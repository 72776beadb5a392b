// SPDX-License-Identifier: Apache-2.0
#include "nn/adalora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "base/random.h"
#include "nn/dropout.h"
#include "nn/lora.h"
#include "tensor/noise.h"

namespace apus {

AdaLora::AdaLora(Spec spec)
    : spec_(spec),
      a_(param("lora_A", {spec.rank, spec.in})),
      e_(param("lora_E", {spec.rank, 1})),
      b_(param("lora_B", {spec.out, spec.rank})) {
  require(spec.rank >= 0 && spec.first_rank > 0, Fault::Model, "AdaLoRA of rank ", spec.rank, " that began with ",
          spec.first_rank);
}

at::Tensor AdaLora::apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& /*weight*/, const Step& s,
                          Memo* memo) const {
  if (spec_.rank == 0) return y_TO;  // nothing of it was left
  return with_low_rank(*this, y_TO, x_TI, scaled_a(), b_.data, spec_.scale(),
                       Dropout::of(spec_.dropout, spec_.id, s, a_), memo);
}

std::pair<at::Tensor, at::Tensor> AdaLora::columns(const at::Tensor& x_TI, const Step& s) const {
  return low_rank_columns(x_TI, scaled_a(), b_.data, spec_.scale(), Dropout::of(spec_.dropout, spec_.id, s, a_));
}

at::Tensor AdaLora::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  return at::addmm(rows.to(at::kFloat), b_.data.to(at::kFloat).narrow(0, first, rows.size(0)),
                   a_.data.to(at::kFloat) * e_.data.to(at::kFloat), 1, spec_.scale());
}

void AdaLora::begin(Adaptable& /*layer*/, const std::string& how, uint64_t seed, at::TensorOptions options) {
  const bool random = how == "false";
  const double deviation = random ? 1 : 0.02;
  const auto noise = [&](const Param& p, uint64_t which) {
    return normal_noise(p.full, 0, deviation, mix(seed, spec_.id, which)).to(options);
  };
  a_.data = noise(a_, 1), b_.data = noise(b_, 2);
  e_.data = random ? noise(e_, 3) : at::zeros(e_.full, options);
}

void AdaLora::settle(const at::Tensor& /*weight*/, at::ScalarType type) {
  for (Param* p : {&a_, &e_, &b_}) p->data = p->data.to(type);
}

}  // namespace apus
