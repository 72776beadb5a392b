// SPDX-License-Identifier: Apache-2.0
#include "nn/fourier.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/fft_ifft2.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/real.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <random>
#include <unordered_map>

#include "base/random.h"
#include "tensor/noise.h"

namespace apus {

// The beginning of Fisher and Yates' shuffle: of the order only what was moved is held.
std::vector<int64_t> first_of_order(int64_t n, int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::unordered_map<int64_t, int64_t> moved;
  const auto at = [&](int64_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<int64_t> first;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t other = i + static_cast<int64_t>(generator() % static_cast<uint64_t>(n - i));
    first.push_back(at(other));
    moved[other] = at(i);
  }
  return first;
}

FourierChange::FourierChange(Spec spec) : spec_(spec), spectrum_(param("fourierft_spectrum", {spec.frequencies})) {
  require(spec.frequencies > 0 && spec.frequencies <= spec.in * spec.out, Fault::Usage, "--fourier_n_frequency ",
          spec.frequencies, ": a layer of ", spec.in, " inputs and ", spec.out, " outputs has 1 to ",
          spec.in * spec.out, " of them");
  places_ = at::tensor(first_of_order(spec.in * spec.out, spec.frequencies, spec.places));
}

namespace {
// cos and sin of 2 pi place i / size, [size, K].
std::pair<at::Tensor, at::Tensor> waves(const at::Tensor& places, int64_t size) {
  const at::Tensor turns =
      (at::arange(size, places.options()).unsqueeze(1) * places.unsqueeze(0)).remainder(size).to(at::kFloat);
  const at::Tensor angles = turns * (2 * M_PI / static_cast<double>(size));
  return {angles.cos(), angles.sin()};
}
}  // namespace

// The real part of the inverse Fourier transform; on devices, which may lack complex numbers, the same sum of waves as
// two products.
at::Tensor FourierChange::change() const {
  const at::Tensor values = spectrum_.data.to(at::kFloat);
  if (!values.is_cpu()) {
    const at::Tensor places = places_.to(values.device());
    const auto [row_cos, row_sin] = waves(places.floor_divide(spec_.in), spec_.out);
    const auto [column_cos, column_sin] = waves(places.remainder(spec_.in), spec_.in);
    const at::Tensor sum = at::matmul(row_cos * values, column_cos.t()) - at::matmul(row_sin * values, column_sin.t());
    return sum * (spec_.scaling / static_cast<double>(spec_.out * spec_.in));
  }
  const at::Tensor empty = at::zeros({spec_.out * spec_.in}, values.options().requires_grad(false));
  const at::Tensor spectrum = at::scatter(empty, 0, places_, values).view({spec_.out, spec_.in});
  return at::real(at::fft_ifft2(spectrum)) * spec_.scaling;
}

at::Tensor FourierChange::apply(const at::Tensor& x_TI, const at::Tensor& y_TO, const at::Tensor& /*weight*/,
                                const Step&, Memo* /*memo*/) const {
  const at::Tensor change = (settled_.defined() ? settled_ : this->change()).to(x_TI.scalar_type());
  return at::addmm(y_TO, x_TI, change.t());
}

std::pair<at::Tensor, at::Tensor> FourierChange::columns(const at::Tensor& /*x_TI*/, const Step&) const {
  fail(Fault::Bug, "a change by frequencies is no product of low rank");
}

at::Tensor FourierChange::merged_rows(const at::Tensor& rows, int64_t first) const {
  at::NoGradGuard no_grad;
  return rows.to(at::kFloat) + change().narrow(0, first, rows.size(0));
}

// PEFT begins with a random change.
void FourierChange::begin(Adaptable& /*layer*/, const std::string& how, uint64_t seed, at::TensorOptions options) {
  spectrum_.data = how == "false" ? at::zeros(spectrum_.full, options)
                                  : normal_noise(spectrum_.full, 0, 1, mix(seed, spec_.id, 1)).to(options);
}

void FourierChange::settle(const at::Tensor& /*weight*/, at::ScalarType type) {
  at::NoGradGuard no_grad;
  settled_ = change().to(type);
}

}  // namespace apus
