// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gradient_init.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/adapter_file.h"
#include "checkpoint/file_names.h"
#include "nn/singular.h"
#include "ops/quantised.h"
#include "tensor/weight_files.h"

namespace apus {
namespace {

// Of large matrices by subspace iteration.
Singular largest_singular(const at::Tensor& matrix, int64_t count, uint64_t seed) {
  constexpr int64_t kSmall = 512, kIterations = 4;
  const bool small = std::min(matrix.size(0), matrix.size(1)) <= kSmall;
  return small ? all_singular(matrix) : iterated_singular(matrix, 2 * count, kIterations, seed);
}

// Takes scale * b a out of the weight, in f32 and rounded once.
void take_out(Adapter& adapter, const std::string& module, Adaptable& layer, double scale, const LoraFactors& f) {
  const at::Tensor weight = layer.weight().data;
  require(weight.defined() && !ops::is_quantised(weight), Fault::Usage, "--init_weights lora-ga changes the base's ",
          "weights, and that of ", module, " is quantised or shared out; use --init_weights true");
  const auto wide = [&](const at::Tensor& t) { return t.to(weight.device(), at::kFloat); };
  layer.put_weight((wide(weight) - wide(f.b).mm(wide(f.a)) * scale).to(weight.scalar_type()));
  adapter.taken_out[module] = {f.a.clone(), f.b.clone()};
}

}  // namespace

LoraFactors factors_of_gradient(const at::Tensor& gradient, const at::Tensor& weight, int64_t rank, double scale,
                                const GradientFactors& how, uint64_t seed) {
  const int64_t out = gradient.size(0), in = gradient.size(1);
  require(2 * rank <= std::min(out, in), Fault::Usage, "--init_weights lora-ga: twice the rank ", rank,
          " exceeds the layer's ", std::min(out, in));
  const Singular g = largest_singular(gradient.to(at::kFloat), 2 * rank, seed);
  LoraFactors f;
  if (how.direction == "ArBr")
    f = {g.v.narrow(0, 0, 2 * rank).view({rank, 2, in}).select(1, 1),
         g.u.narrow(1, 0, 2 * rank).reshape({out, rank, 2}).select(2, 0)};
  else if (how.direction == "A2rBr")
    f = {g.v.narrow(0, rank, rank), g.u.narrow(1, 0, rank)};
  else
    f = {g.v.narrow(0, 0, rank), g.u.narrow(1, rank, rank)};
  double of_a = 1, of_b = 1;
  if (how.scale == "gd") {
    of_a = of_b = 1 / scale;
  } else if (how.scale == "stable") {
    of_a = std::pow(static_cast<double>(in), 0.25) / std::sqrt(how.stable_gamma);
    of_b = std::pow(static_cast<double>(out), 0.25) / std::sqrt(how.stable_gamma);
  } else if (how.scale == "weightS") {
    const Singular w = largest_singular(weight.to(at::kFloat), 2 * rank, seed);
    of_a = of_b = (w.s.narrow(0, 0, rank) / scale).sqrt().mean().item<double>();
  }
  return {f.a * of_a, f.b * of_b};
}

void each_lora_layer(Model& model, const Adapter& adapter,
                     const std::function<void(const std::string&, Adaptable&, Lora&)>& f) {
  model.visit_modules([&](const std::string& name, Module& module) {
    auto* const layer = dynamic_cast<Adaptable*>(&module);
    if (!layer || layer->sides().looks_up) return;
    const auto found = layer->adapters().find(adapter.name);
    if (found == layer->adapters().end()) return;
    if (auto* const lora = dynamic_cast<Lora*>(found->second)) f(name, *layer, *lora);
  });
}

void begin_by_gradients(Model& model, Adapter& adapter, const std::map<std::string, at::Tensor>& gradients,
                        const GradientFactors& how, uint64_t seed) {
  at::NoGradGuard no_grad;
  each_lora_layer(model, adapter, [&](const std::string& module, Adaptable& layer, Lora& lora) {
    const auto gradient = gradients.find(module);
    require(gradient != gradients.end(), Fault::Usage, "--init_weights lora-ga: the rows have no gradient for ", module,
            ", an expert that none of their tokens met, maybe: raise --lora_ga_iters, or leave it out of "
            "--target_modules");
    const double scale = lora.spec().scale();
    const LoraFactors f = factors_of_gradient(gradient->second, layer.weight().data.to(gradient->second.device()),
                                              lora.spec().rank, scale, how, mix(seed, lora.spec().id, 3));
    lora.a().data.copy_(f.a), lora.b().data.copy_(f.b);
    take_out(adapter, module, layer, scale, {lora.a().data, lora.b().data});
  });
}

void take_out_again(Model& model, Adapter& adapter, const std::filesystem::path& dir) {
  at::NoGradGuard no_grad;
  const AdapterFile file(adapter_folder(dir) / single_file(kAdapterWeights), adapter.config);
  each_lora_layer(model, adapter, [&](const std::string& module, Adaptable& layer, Lora& lora) {
    const int64_t rank = lora.spec().rank;
    const auto part = [&](const char* factor, int64_t dim) {
      const std::string name = name_in_file(adapter.config, module) + factor;
      require(file.entries().count(name) && file.entries().at(name).shape[static_cast<size_t>(dim)] == 2 * rank,
              Fault::Usage, dir.string(), ": ", name, " is missing or has not twice the rank ", rank,
              ": was the run begun with --init_weights lora-ga, and this --lora_rank?");
      return file.tensor(name).narrow(dim, rank, rank).to(lora.a().data.options()).clone();
    };
    take_out(adapter, module, layer, lora.spec().scale(), {part(".lora_A.weight", 0).neg(), part(".lora_B.weight", 1)});
  });
}

}  // namespace apus
