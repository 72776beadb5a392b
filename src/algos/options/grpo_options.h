// SPDX-License-Identifier: Apache-2.0
// The options of GRPO and its kin: answers are rolled out, rewarded and compared with others to the same question.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "algos/options/chord_options.h"
#include "algos/options/router_replay_options.h"
#include "algos/options/teacher_say_options.h"
#include "base/options.h"
#include "environment/environment_options.h"
#include "reward/reward_options.h"
#include "train/options/algorithm_options.h"
#include "train/options/loop_options.h"
#include "train/options/rollout_options.h"

namespace apus {

struct GrpoOptions : RewardOptions,
                     EnvironmentOptions,
                     RolloutServerOptions,
                     ChordOptions,
                     RouterReplayOptions,
                     TeacherSayOptions {
  int64_t num_generations = 8;
  std::optional<int64_t> num_generations_eval;
  std::optional<int64_t> steps_per_generation, generation_batch_size;
  int64_t num_iterations = 1;
  bool dynamic_sample = false;
  int64_t max_resample_times = 3;
  bool overlong_filter = false, log_completions = false, log_entropy = false;
  std::optional<std::string> replay_rollouts, dump_rollouts;
  bool deterministic_rollout = false;
  std::optional<bool> share_prefix;  // absent: where it comes to the same
  std::optional<int64_t> max_staleness;
  bool async_generate = false, partial_rollout = false;

  std::string advantage_estimator = "grpo";
  std::optional<std::string> scale_rewards;
  std::string loss_type = "grpo", importance_sampling_level = "token";
  double epsilon = 0.2;
  std::optional<double> epsilon_high, delta;
  double tau_pos = 1, tau_neg = 1.05, real_tau = 0.5;
  double fipo_decay_rate = 32, fipo_clip_range = 0.2, fipo_safety_threshold = 4;
  bool fipo_clip_high_only = true;
  double vespo_k_pos = 2, vespo_k_neg = 3, vespo_lambda_pos = 3, vespo_lambda_neg = 2;
  double dro_beta = 0.1, cov_ratio = 2e-4, clip_cov_low = 1, clip_cov_high = 5, kl_cov_coef = 1;

  // On-policy distillation: a token that the teacher finds likelier than the policy did is worth that much more.
  std::optional<std::string> teacher_model;
  std::vector<std::string> teacher_adapters;  // one folder, or none
  double teacher_kl_coef = 1;

  double beta = 0.04;
  std::optional<bool> kl_in_reward;
  std::optional<std::string> kl_estimator;
  bool bound_k3 = true, use_unbiased_kl = false;
  double entropy_coef = 0, top_entropy_quantile = 1;
  std::optional<std::string> rollout_importance_sampling_mode;
  double rollout_importance_sampling_threshold = 2, rollout_importance_sampling_low = 0;
  bool rollout_importance_sampling_product = false;
  bool log_rollout_offpolicy_metrics = false;
  std::optional<double> off_policy_sequence_mask_delta;

  bool uses_reference() const { return beta > 0; }
  AlgorithmNeeds needs() const {
    return {.rows_apart = !chord_sft_dataset.empty() ? "--chord_sft_dataset"
                          : partial_rollout          ? "--partial_rollout"
                                                     : "",
            .met_experts = replay_asked(),
            .steady_rows = deterministic_rollout};
  }
  std::vector<OtherModel> other_models();  // of --reward_model
  bool brings_rows() const { return replay_rollouts.has_value(); }
  std::string scale() const;  // of rewards: as given, else what suits the estimator
  // Rounds that are asked before it is their turn.
  int64_t rounds_ahead() const { return max_staleness.value_or(async_generate || partial_rollout ? 1 : 0); }
  // Whether servers draw rounds that wait while the trainer works. Not where a round asks further questions
  // of its answers.
  bool draws_beside() const {
    return rounds_ahead() > 0 && !server_urls().empty() && !partial_rollout && !dynamic_sample && !asks_greedy();
  }
  bool asks_greedy() const;      // the likeliest answer too
  bool kl_rewarded() const;      // else it is part of the loss
  std::string kl() const;        // the estimate's name
  double upper_epsilon() const;  // of cispo the bound itself
  int64_t generations(bool evaluation) const {
    return evaluation ? num_generations_eval.value_or(num_generations) : num_generations;
  }

  // How the answers of one round are divided, on each rank.
  struct Division {
    int64_t questions = 0, micro_batches = 0;  // of a round
    int64_t updates = 0;                       // ... once through them
    int64_t sharers = 1;                       // neighbouring ranks that answer these questions together
  };
  Division division(const LoopOptions& loop, int64_t ranks) const;  // Fault::Usage, with what would divide

  int64_t group_sharers(const LoopOptions& loop, int64_t ranks) const;

  void fields(OptionTable& v);
  void check() const;
  void check(const LoopOptions& loop, int64_t ranks) const;

 private:
  int64_t micro_batches_of_round(const LoopOptions& loop, int64_t ranks) const;
  void loss_fields(OptionTable& v);
  void other_fields(OptionTable& v);
};

}  // namespace apus
