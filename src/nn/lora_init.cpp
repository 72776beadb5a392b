// SPDX-License-Identifier: Apache-2.0
// First values of LoRA factors.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "nn/lora.h"
#include "nn/singular.h"
#include "tensor/noise.h"

namespace apus {
namespace {

// U(-1/sqrt(fan_in), 1/sqrt(fan_in)): what Kaiming's rule gives for a = sqrt(5).
at::Tensor kaiming(at::IntArrayRef shape, uint64_t seed) {
  const double bound = 1 / std::sqrt(static_cast<double>(shape[1]));
  return uniform_noise(shape, -bound, bound, seed, at::kCPU);
}

struct Factors {
  at::Tensor a, b;
};

// The r largest singular triples: exactly, or by subspace iteration from a random start.
Factors principal(const at::Tensor& weight, int64_t rank, int64_t iterations, uint64_t seed) {
  const int64_t width = std::min(rank + 8, std::min(weight.size(0), weight.size(1)));
  const Singular all = iterations == 0 ? all_singular(weight) : iterated_singular(weight, width, iterations, seed);
  const at::Tensor u = all.u.narrow(1, 0, rank), s = all.s.narrow(0, 0, rank), v = all.v.narrow(0, 0, rank);
  const at::Tensor root = s.sqrt();
  return {root.unsqueeze(1) * v, u * root.unsqueeze(0)};
}

// Takes scale * b a out of the layer's weight, in f32 and rounded once.
void subtract(Adaptable& layer, const Factors& f) {
  at::Tensor& weight = layer.weight().data;
  weight.copy_(weight.to(at::kFloat) - f.b.mm(f.a).to(weight.device()));
}

int64_t pissa_iterations(const std::string& how) {
  const std::string prefix = "pissa_niter_";
  if (how == "pissa" || how.rfind(prefix, 0) != 0) return 0;
  return std::strtoll(how.c_str() + prefix.size(), nullptr, 10);
}

}  // namespace

bool init_changes_weight(const std::string& how) { return how.rfind("pissa", 0) == 0 || how == "olora"; }

void check_lora_init(const std::string& how) {
  const bool iterated = how.rfind("pissa_niter_", 0) == 0 && pissa_iterations(how) > 0;
  const std::vector<std::string> plain = {"true", "false", "kaiming", "gaussian", "pissa", "olora", "lora-ga"};
  require(iterated || std::find(plain.begin(), plain.end(), how) != plain.end(), Fault::Usage, "--init_weights ", how,
          " is not available; possible: true, false, gaussian, pissa, pissa_niter_N (N > 0), olora, lora-ga");
}

void init_lora(Lora& lora, Adaptable& layer, const std::string& how, uint64_t seed, at::TensorOptions options) {
  at::NoGradGuard no_grad;
  check_lora_init(how);
  const auto& spec = lora.spec();
  const uint64_t seed_a = mix(seed, spec.id, 1), seed_b = mix(seed, spec.id, 2);
  Factors f;
  if (spec.looks_up) {
    f.a = how == "false" ? normal_noise({spec.rank, spec.in}, 0, 1, seed_a) : at::zeros({spec.rank, spec.in});
    f.b = normal_noise({spec.out, spec.rank}, 0, 1, seed_b);
  } else if (init_changes_weight(how)) {
    require(spec.rank <= std::min(spec.in, spec.out), Fault::Usage, "--init_weights ", how, ": the rank ", spec.rank,
            " exceeds the layer's ", std::min(spec.in, spec.out));
    const at::Tensor weight = layer.weight().data.to(at::kCPU, at::kFloat);
    if (how == "olora") {
      const auto [q, r] = at::linalg_qr(weight);
      f = {r.narrow(0, 0, spec.rank).contiguous(), q.narrow(1, 0, spec.rank).contiguous()};
      subtract(layer, {f.a * spec.scale(), f.b});
    } else {
      f = principal(weight, spec.rank, pissa_iterations(how), seed_a);
      subtract(layer, f);
      f.a = f.a / std::sqrt(spec.scale()), f.b = f.b / std::sqrt(spec.scale());  // scale * b a is what was taken out
    }
  } else {
    f.a = how == "gaussian" ? normal_noise({spec.rank, spec.in}, 0, 1 / static_cast<double>(spec.rank), seed_a)
                            : kaiming({spec.rank, spec.in}, seed_a);
    f.b = how == "false" ? kaiming({spec.out, spec.rank}, seed_b) : at::zeros({spec.out, spec.rank});
  }
  lora.a().data = f.a.to(options).contiguous();
  lora.b().data = f.b.to(options).contiguous();
  if (lora.shift()) lora.shift()->data = at::zeros({spec.out}, options);
  if (lora.magnitude())
    lora.magnitude()->data =
        changed_row_norms(layer.weight().data, lora.a().data, lora.b().data, spec.scale()).to(options);
}

}  // namespace apus
