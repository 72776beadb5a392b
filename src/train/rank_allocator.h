// SPDX-License-Identifier: Apache-2.0
// AdaLoRA's training: which ranks matter, and how many of them are left. Every rank of a layer is a row of A, a value
// in E and a column of B. Its importance follows |weight * gradient| of these numbers over the updates; the values of
// the least important ranks of all layers become 0, until on average the rank that is wanted is left.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/adapter_kinds.h"
#include "nn/module.h"

namespace apus {

// What may be left of `first` ranks after this update (from 1), and whether the others are taken away now.
struct RankBudget {
  int64_t ranks = 0;
  bool taken_away = false;
};
RankBudget rank_budget(const AdaLoraSettings& settings, int64_t first, int64_t target, int64_t step);

// Importance of numbers, f32 in their shape: the running mean of |weight * gradient| and of how far it strays from it.
struct Importance {
  at::Tensor mean, uncertainty;
  void follow(const at::Tensor& weight, const at::Tensor& gradient, double beta1, double beta2);
};

// Which ranks stay: those whose importance is above that of the `away`-th least; away 0: all. importance: of each
// layer [r].
std::vector<at::Tensor> ranks_that_stay(const std::vector<at::Tensor>& importance, int64_t away);

class RankAllocator {
 public:
  // Of the model's AdaLoRA factors; no others need it.
  RankAllocator(Module& model, AdaLoraSettings settings);

  // The length of the run; Fault::Usage when it leaves no update to take ranks away in.
  void plan(int64_t steps);
  // The mean over all factors A and B of |A A' - I| or |B' B - I|, times --adalora_orth_reg_weight: part of the loss.
  at::Tensor penalty() const;
  // After an update (from 1), while its gradients are there; they were multiplied by grad_scale.
  void updated(int64_t step, double grad_scale);
  int64_t ranks_left() const;

  // As named tensors, for checkpoints.
  std::map<std::string, at::Tensor> state() const;
  void load(const std::map<std::string, at::Tensor>& state);
  static bool is_state(const std::string& name);

 private:
  struct Layer {
    std::string name;
    at::Tensor a, e, b;  // [r, in], [r, 1], [out, r]
    Importance of_a, of_e, of_b;
    at::Tensor stays;  // [r] bool, once ranks were taken away
  };
  void follow(double grad_scale);
  void take_away(int64_t ranks_to_leave);
  void mask();

  AdaLoraSettings settings_;
  std::vector<Layer> layers_;
  int64_t first_ = 0;  // ranks of all layers
};

}  // namespace apus
