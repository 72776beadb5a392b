// SPDX-License-Identifier: Apache-2.0
#include "train/rank_allocator.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/kthvalue.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "base/error.h"
#include "nn/adalora.h"

namespace apus {
namespace {

constexpr const char* kPrefix = "ranks/";

at::Tensor from_identity(const at::Tensor& product) {
  return (product - at::eye(product.size(0), product.options().requires_grad(false))).norm();
}

}  // namespace

RankBudget rank_budget(const AdaLoraSettings& s, int64_t first, int64_t target, int64_t step) {
  if (step <= s.first_steps) return {first, false};
  const int64_t last = s.total_steps - s.last_steps;
  if (step > last) return {target, true};
  const double to_go =
      1 - static_cast<double>(step - s.first_steps) / static_cast<double>(s.total_steps - s.last_steps - s.first_steps);
  const auto ranks =
      static_cast<int64_t>(static_cast<double>(first - target) * std::pow(to_go, 3) + static_cast<double>(target));
  return {ranks, step == last || step % s.every == 0};
}

void Importance::follow(const at::Tensor& weight, const at::Tensor& gradient, double beta1, double beta2) {
  const at::Tensor now = (weight.detach().to(at::kFloat) * gradient.to(at::kFloat)).abs();
  if (!mean.defined()) mean = at::zeros_like(now), uncertainty = at::zeros_like(now);
  mean = mean * beta1 + now * (1 - beta1);
  uncertainty = uncertainty * beta2 + (now - mean).abs() * (1 - beta2);
}

std::vector<at::Tensor> ranks_that_stay(const std::vector<at::Tensor>& importance, int64_t away) {
  std::vector<at::Tensor> stay;
  const at::Tensor all = at::cat(importance);
  const int64_t count = std::min(away, all.numel());
  const double limit = count <= 0 ? -1 : std::get<0>(at::kthvalue(all, count)).item<double>();
  for (const at::Tensor& layer : importance) stay.push_back(layer.gt(limit));
  return stay;
}

RankAllocator::RankAllocator(Module& model, AdaLoraSettings settings) : settings_(settings) {
  model.visit_modules([&](const std::string& name, Module& module) {
    if (auto* factors = dynamic_cast<AdaLora*>(&module)) {
      layers_.push_back({.name = name, .a = factors->a().data, .e = factors->e().data, .b = factors->b().data});
      first_ += factors->spec().rank;
    }
  });
}

void RankAllocator::plan(int64_t steps) {
  settings_.total_steps = steps;
  const AdaLoraSettings& s = settings_;
  require(s.first_steps < steps - s.last_steps, Fault::Usage, "--adalora_tinit ", s.first_steps,
          " and --adalora_tfinal ", s.last_steps, " leave no update of ", steps,
          " to take ranks away in: lower them, or train longer");
}

at::Tensor RankAllocator::penalty() const {
  at::Tensor sum;
  double count = 0;
  for (const Layer& layer : layers_) {
    if (layer.a.size(0) == 0) continue;
    const at::Tensor a = layer.a.to(at::kFloat), b = layer.b.to(at::kFloat);
    const at::Tensor both = from_identity(a.mm(a.t())) + from_identity(b.t().mm(b)).to(a.device());
    sum = sum.defined() ? sum + both.to(sum.device()) : both;
    count += 2;
  }
  return sum.defined() ? sum * (settings_.orthogonal / count) : sum;
}

void RankAllocator::updated(int64_t step, double grad_scale) {
  at::NoGradGuard no_grad;
  const int64_t last = settings_.total_steps - settings_.last_steps;
  if (step < last) follow(grad_scale);
  const RankBudget budget =
      rank_budget(settings_, first_, settings_.target_rank * static_cast<int64_t>(layers_.size()), step);
  if (step <= last && budget.taken_away) take_away(budget.ranks);
  if (step > last) mask();
  if (step >= last)  // what is left, is left
    for (Layer& layer : layers_) layer.of_a = layer.of_e = layer.of_b = {};
}

void RankAllocator::follow(double grad_scale) {
  for (Layer& layer : layers_)
    for (const auto& [weight, importance] :
         {std::pair{&layer.a, &layer.of_a}, {&layer.e, &layer.of_e}, {&layer.b, &layer.of_b}})
      if (weight->grad().defined())
        importance->follow(*weight, weight->grad() * grad_scale, settings_.beta1, settings_.beta2);
}

// A rank counts as its value, and the mean of its row of A and of its column of B.
void RankAllocator::take_away(int64_t ranks_to_leave) {
  const auto of = [](const Importance& i) { return i.mean * i.uncertainty; };
  std::vector<at::Tensor> importance;
  for (const Layer& layer : layers_) {
    if (!layer.of_a.mean.defined() || !layer.of_e.mean.defined() || !layer.of_b.mean.defined()) return;
    importance.push_back(of(layer.of_e).view(-1) + of(layer.of_a).mean(1) + of(layer.of_b).mean(0));
    if (importance.size() > 1) importance.back() = importance.back().to(importance.front().device());
  }
  const auto stay = ranks_that_stay(importance, first_ - ranks_to_leave);
  for (size_t i = 0; i < layers_.size(); ++i) layers_[i].stays = stay[i].to(layers_[i].e.device());
  mask();
}

void RankAllocator::mask() {
  for (Layer& layer : layers_)
    if (layer.stays.defined()) layer.e.detach().mul_(layer.stays.unsqueeze(1));
}

int64_t RankAllocator::ranks_left() const {
  int64_t left = 0;
  for (const Layer& layer : layers_) left += layer.e.detach().ne(0).sum().item<int64_t>();
  return left;
}

std::map<std::string, at::Tensor> RankAllocator::state() const {
  std::map<std::string, at::Tensor> out;
  for (const Layer& layer : layers_) {
    for (const auto& [what, i] : {std::pair{"A", &layer.of_a}, {"E", &layer.of_e}, {"B", &layer.of_b}}) {
      if (!i->mean.defined()) continue;
      out[str(kPrefix, layer.name, ".", what, ".mean")] = i->mean;
      out[str(kPrefix, layer.name, ".", what, ".uncertainty")] = i->uncertainty;
    }
    if (layer.stays.defined()) out[kPrefix + layer.name + ".stays"] = layer.stays.to(at::kByte);
  }
  return out;
}

void RankAllocator::load(const std::map<std::string, at::Tensor>& state) {
  const auto take = [&](const std::string& name, at::Tensor& to, const at::Tensor& like, at::ScalarType type) {
    const auto found = state.find(name);
    if (found == state.end()) return;
    require(found->second.numel() == like.numel(), Fault::Usage, "the checkpoint's ", name,
            " is of another shape: was --adalora_init_r changed?");
    to = found->second.to(like.device(), type).clone();
  };
  for (Layer& layer : layers_) {
    for (const auto& [what, i, like] :
         {std::tuple{"A", &layer.of_a, &layer.a}, {"E", &layer.of_e, &layer.e}, {"B", &layer.of_b, &layer.b}}) {
      take(str(kPrefix, layer.name, ".", what, ".mean"), i->mean, *like, at::kFloat);
      take(str(kPrefix, layer.name, ".", what, ".uncertainty"), i->uncertainty, *like, at::kFloat);
    }
    take(kPrefix + layer.name + ".stays", layer.stays, layer.e, at::kBool);
  }
}

bool RankAllocator::is_state(const std::string& name) { return name.starts_with(kPrefix); }

}  // namespace apus
