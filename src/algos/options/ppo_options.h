// SPDX-License-Identifier: Apache-2.0
// The options of PPO.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algos/options/router_replay_options.h"
#include "environment/environment_options.h"
#include "reward/reward_options.h"
#include "train/options/algorithm_options.h"
#include "train/options/loop_options.h"
#include "train/options/rollout_options.h"

namespace apus {

struct PpoOptions : RewardOptions, EnvironmentOptions, RolloutServerOptions, RouterReplayOptions {
  std::optional<std::string> value_model;
  std::optional<double> critic_learning_rate;
  int64_t critic_warmup_rounds = 0;
  std::optional<int64_t> num_ppo_epochs;  // absent: 4, and 1 of answers from a file
  int64_t num_mini_batches = 1;
  double kl_coef = 0.05;
  std::string kl_estimator = "k1";
  std::optional<double> kl_target;
  double kl_horizon = 10000;
  double cliprange = 0.2, cliprange_value = 0.2, vf_coef = 0.1;
  double gamma = 1, lam = 0.95;
  double entropy_coef = 0;
  bool whiten_rewards = false;
  std::optional<double> missing_eos_penalty;
  int64_t local_rollout_forward_batch_size = 64;
  bool log_completions = false;
  std::optional<std::string> replay_rollouts, dump_rollouts;
  bool deterministic_rollout = false;

  bool uses_reference() const { return kl_coef > 0; }
  bool brings_rows() const { return replay_rollouts.has_value(); }
  int64_t passes() const { return brings_rows() ? 1 : num_ppo_epochs.value_or(4); }
  int64_t updates() const { return passes() * num_mini_batches; }  // of a round
  std::vector<OtherModel> other_models();

  AlgorithmNeeds needs() const { return {.met_experts = replay_asked(), .steady_rows = deterministic_rollout}; }

  void fields(OptionTable& v);
  void check() const;
  void check(const LoopOptions& loop, int64_t ranks) const;
};

}  // namespace apus
