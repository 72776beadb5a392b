// SPDX-License-Identifier: Apache-2.0
// Steps of an algorithm that compares answers, on rows of token ids, without a trainer.
#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full_like.h>

#include "nn/training_step.h"
#include "tests/train/training.h"

namespace apus::test {

// Pairs of golden/rl_qwen2: chosen, rejected, chosen, ...
inline Samples golden_pairs(const golden::Case& c) {
  Samples chosen = golden::samples_of(golden::unpad(c, "dpo/chosen")),
          rejected = golden::samples_of(golden::unpad(c, "dpo/rejected")), out;
  for (size_t i = 0; i < chosen.size(); ++i) {
    rejected[i].grouped = true;
    out.push_back(chosen[i]), out.push_back(rejected[i]);
  }
  return out;
}

// Each group a micro-batch of its own.
inline std::vector<Samples> one_by_one(const Samples& samples) { return groups_of(samples); }

struct Step1 {
  double loss = 0, norm = 0;
  std::map<std::string, double> metrics;
  std::map<std::string, at::Tensor> gradients;
};

inline Step1 step_of(Algorithm& algorithm, Actors actors, const std::vector<Samples>& micro_batches) {
  const auto params = golden::trainable(actors.policy);
  for (const NamedParam& p : params) p.tensor.mutable_grad().reset();
  std::vector<Update> updates = algorithm.collect(actors, micro_batches);
  Update& update = updates.at(0);
  if (algorithm.looks_at_updates()) {
    const at::NoGradGuard no_grad;
    algorithm.look_at(actors, update);
  }
  double total = 0;
  for (Batch& batch : update) total += algorithm.count(batch);
  Step1 out;
  std::map<std::string, std::pair<double, double>> sums;
  for (Batch& each : update) {
    Batch batch = each.to(golden::device());
    set_training(batch.step, {.dropout_seed = 7});
    const Loss loss = algorithm.loss(actors, batch, Forward{});
    loss.sum.backward(at::full_like(loss.sum, 1 / total));
    out.loss += loss.sum.item<double>() / total;
    for (const auto& [name, ratio] : loss.metrics) {
      sums[name].first += ratio.sum.item<double>();
      sums[name].second += ratio.count.item<double>();
    }
  }
  for (const auto& [name, sum] : sums)
    if (sum.second > 0) out.metrics[name] = sum.first / sum.second;
  for (const NamedParam& p : params) {
    if (!p.tensor.grad().defined()) continue;
    out.gradients[p.name] = p.tensor.grad().clone();
    out.norm += out.gradients[p.name].square().sum().item<double>();
  }
  out.norm = std::sqrt(out.norm);
  return out;
}

// Largest difference over loss and gradients, relative to each gradient.
inline double distance(const Step1& a, const Step1& b) {
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  double worst = std::fabs(a.loss - b.loss);
  for (const auto& [name, gradient] : a.gradients)
    worst = std::max(worst, (gradient - b.gradients.at(name)).norm().item<double>() /
                                std::max(1e-3, gradient.norm().item<double>()));
  return worst;
}

}  // namespace apus::test
