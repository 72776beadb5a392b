// SPDX-License-Identifier: Apache-2.0
#include "nn/vera.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "base/random.h"
#include "nn/dropout.h"
#include "nn/lora.h"
#include "tensor/noise.h"

namespace apus {

// Kaiming's uniform numbers for the inputs of each: up to sqrt(6 / in) of A, and sqrt(6 / r) of B.
std::shared_ptr<SharedMatrices> SharedMatrices::drawn(int64_t rank, int64_t in, int64_t out, uint64_t key) {
  at::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(key);
  const auto draw = [&](int64_t rows, int64_t columns) {
    const double bound = std::sqrt(3.0) * (std::sqrt(2.0) / std::sqrt(static_cast<double>(columns)));
    return at::empty({rows, columns}, at::kFloat).uniform_(-bound, bound, generator);
  };
  const at::Tensor a = draw(rank, in);
  return std::make_shared<SharedMatrices>(a, draw(out, rank));
}

void SharedMatrices::put(at::Tensor a, at::Tensor b) { copies_ = {{a.to(at::kFloat), b.to(at::kFloat)}}; }

std::pair<at::Tensor, at::Tensor> SharedMatrices::on(at::Device device) {
  for (const auto& copy : copies_)
    if (copy.first.device() == device) return copy;
  return copies_.emplace_back(copies_[0].first.to(device), copies_[0].second.to(device));
}

Vera::Vera(Spec spec, std::shared_ptr<SharedMatrices> shared)
    : spec_(spec),
      shared_(std::move(shared)),
      b_(param("vera_lambda_b", {spec.out})),
      d_(param("vera_lambda_d", {spec.rank})) {
  const auto [a, b] = shared_->on(at::kCPU);
  const bool matrices = a.dim() == 2 && b.dim() == 2 && a.size(0) == spec.rank && b.size(1) == spec.rank;
  require(matrices && a.size(1) >= spec.in && b.size(0) >= spec.out, Fault::Model,
          "VeRA's shared matrices are of another rank than ", spec.rank, " or too small for a layer of ", spec.in,
          " inputs and ", spec.out, " outputs");
}

std::pair<at::Tensor, at::Tensor> Vera::factors() const {
  if (settled_.first.defined()) return settled_;
  const auto [a, b] = shared_->on(d_.data.device());
  const at::Tensor scaled = b.narrow(0, 0, spec_.out) * d_.data * b_.data.unsqueeze(1);
  return {a.narrow(1, 0, spec_.in), scaled};
}

at::Tensor Vera::apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& /*weight*/, const Step& s,
                       Memo* memo) const {
  const auto [a, b] = factors();
  return with_low_rank(*this, y_TO, x_TI, a, b, 1, Dropout::of(spec_.dropout, spec_.id, s), memo);
}

std::pair<at::Tensor, at::Tensor> Vera::columns(const at::Tensor& x_TI, const Step& s) const {
  const auto [a, b] = factors();
  return low_rank_columns(x_TI, a, b, 1, Dropout::of(spec_.dropout, spec_.id, s));
}

at::Tensor Vera::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  const auto [a, b] = factors();
  return at::addmm(rows.to(at::kFloat), b.to(at::kFloat).narrow(0, first, rows.size(0)), a.to(at::kFloat));
}

void Vera::begin(Adaptable& /*layer*/, const std::string& how, uint64_t seed, at::TensorOptions options) {
  const bool random = how == "false";
  b_.data = random ? at::ones(b_.full, options) : at::zeros(b_.full, options);
  d_.data = random ? normal_noise(d_.full, 0, 1, mix(seed, spec_.id, 1)).to(options)
                   : at::full(d_.full, spec_.first_d, options);
}

void Vera::settle(const at::Tensor& /*weight*/, at::ScalarType type) {
  at::NoGradGuard no_grad;
  const auto [a, b] = factors();
  settled_ = {a.to(type).contiguous(), b.to(type)};
}

}  // namespace apus
