// SPDX-License-Identifier: Apache-2.0
#include "algos/options/ppo_options.h"

#include "algos/options/reward_models.h"
#include "base/error.h"
#include "environment/plugin.h"

namespace apus {

void PpoOptions::fields(OptionTable& v) {
  v.group("Critic");
  v("value_model", value_model,
    "the critic as it begins: a model with a head of one score, or any model, whose head "
    "then begins anew")
      .common()
      .shown_default("--reward_model; else --model")
      .noted();
  v("critic_learning_rate", critic_learning_rate, "the critic's learning rate")
      .above(0)
      .shown_default("--learning_rate")
      .noted();
  v("critic_warmup_rounds", critic_warmup_rounds, "rounds in which it learns alone and the policy stays as it is")
      .at_least(0)
      .noted();
  v("vf_coef", vf_coef, "weight of the critic's loss").above(0).noted();
  v("cliprange_value", cliprange_value, "how far a value may move from what it was before the round's updates")
      .above(0)
      .noted();
  v.group("Rollout");
  v("max_completion_length", max_completion_length, "longest answer in tokens")
      .common()
      .at_least(1)
      .alias("response_length", "TRL's name")
      .noted();
  v("local_rollout_forward_batch_size", local_rollout_forward_batch_size,
    "answers that go through a model at once where nothing is learnt")
      .at_least(1);
  v("log_completions", log_completions, "write all answers with their rewards to completions.jsonl");
  v("replay_rollouts", replay_rollouts,
    "learn from the answers of a file instead: rows {\"group\", \"prompt_ids\", \"completion_ids\", \"reward\", "
    "\"logprobs\"}, one update for each pass over them");
  v("dump_rollouts", dump_rollouts, "add the answers of every round to a file that --replay_rollouts reads");
  v("deterministic_rollout", deterministic_rollout,
    "engine and trainer give a token the same bits, in bfloat16 too; a run in which a log-probability differs ends");
  RouterReplayOptions::fields(v);
  v.no_effect({"num_sample_generations"}, "--log_completions true writes the answers of every round");
  v.group("Loss");
  v("num_ppo_epochs", num_ppo_epochs, "times that a round of answers is learnt from")
      .common()
      .at_least(1)
      .shown_default("4; of --replay_rollouts 1")
      .noted();
  v("num_mini_batches", num_mini_batches, "updates that a round is divided into, each time").at_least(1).noted();
  v("cliprange", cliprange, "a ratio of new to old probability outside 1 +- cliprange is not pushed further")
      .above(0)
      .noted();
  v("gamma", gamma, "what a reward counts one token earlier").above(0).at_most(1).noted();
  v("lam", lam, "GAE: 1 trusts the rewards, 0 the critic").at_least(0).at_most(1).noted();
  v("whiten_rewards", whiten_rewards, "scale the rewards of a round to variance 1").noted();
  v("missing_eos_penalty", missing_eos_penalty, "taken off the reward of an answer that was cut").at_least(0).noted();
  v("kl_coef", kl_coef, "what the divergence from the reference takes off the reward of each token; 0: there is none")
      .common()
      .at_least(0)
      .noted();
  v("kl_estimator", kl_estimator, "how the divergence from the reference is estimated")
      .choices({"k1", "k2", "k3"})
      .noted();
  v("kl_target", kl_target, "move kl_coef so that an answer's divergence comes near this")
      .above(0)
      .shown_default("kl_coef stays")
      .noted();
  v("kl_horizon", kl_horizon, "--kl_target: answers in which the coefficient adapts").above(0).noted();
  v("entropy_coef", entropy_coef, "weight of a bonus for uncertainty").at_least(0).noted();
  RewardOptions::fields(v);
  PluginOptions::fields(v);
  EnvironmentOptions::fields(v);
  RolloutServerOptions::fields(v);
}

std::vector<OtherModel> PpoOptions::other_models() {
  std::vector<OtherModel> out = reward_models(*this);
  const bool scored = !reward_model.empty() && reward_adapters.empty();
  out.push_back({.role = "critic",
                 .flag = "--value_model",
                 .folder = value_model ? &*value_model
                           : scored    ? &reward_model[0]
                                       : nullptr,
                 .head = Head::Scalar,
                 .trained = true,
                 .learning_rate = critic_learning_rate});
  return out;
}

void PpoOptions::check() const {
  RewardOptions::check();
  EnvironmentOptions::check();
  RolloutServerOptions::check();
  require(!(brings_rows() && deterministic_rollout), Fault::Usage,
          "--deterministic_rollout compares the engine with the trainer, and --replay_rollouts has no engine");
  RouterReplayOptions::check(brings_rows(), deterministic_rollout);
  require(!(brings_rows() && several_turns()), Fault::Usage,
          "--replay_rollouts generates nothing, and --environment replies to what is generated: give one of them");
  require(
      brings_rows() || !reward_funcs.empty() || !reward_model.empty() || several_turns(), Fault::Usage,
      "--reward_model or --reward_funcs is needed: what makes an answer good, e.g. a model that apus rlhf "
      "--rlhf_type rm trained, accuracy, or external:./reward.py; or --environment, which gives rewards of its own");
  require(!brings_rows() || (num_ppo_epochs.value_or(1) == 1 && num_mini_batches == 1), Fault::Usage,
          "--replay_rollouts makes one update of each pass over the file: --num_train_epochs says how many passes; "
          "--num_ppo_epochs and --num_mini_batches are of answers that are rolled out");
  require(!kl_target || kl_coef > 0, Fault::Usage, "--kl_target moves --kl_coef, which is 0: begin with 0.05 or 0.2");
  require(
      stop_words.empty() || !several_turns(), Fault::Usage,
      "--stop_words end an answer in the middle of its message, and --environment replies to whole ones: give one of "
      "them");
  check_plugins(*this, reward_funcs, this);
}

void PpoOptions::check(const LoopOptions& loop, int64_t ranks) const {
  if (brings_rows()) return;
  const int64_t answers = loop.per_device_train_batch_size * loop.accumulation(ranks);
  require(answers >= num_mini_batches, Fault::Usage, "a round gives each process ", answers,
          " answers (--per_device_train_batch_size ", loop.per_device_train_batch_size,
          " x --gradient_accumulation_steps ", loop.accumulation(ranks), "), fewer than --num_mini_batches ",
          num_mini_batches);
  check_updates(updates(), "--num_ppo_epochs 2, or --num_mini_batches");
}

namespace {

const RegisterAlgorithmOptions<PpoOptions> ppo(
    "ppo",
    {.summary = "answers are rolled out and rewarded; a critic learns what to expect, and what is better becomes "
                "likelier",
     .command = "rlhf",
     .examples = {"rlhf --rlhf_type ppo --model DIR --dataset questions.jsonl --reward_model DIR",
                  "rlhf --rlhf_type ppo --model DIR --dataset questions.jsonl --reward_funcs accuracy"},
     .defaults = {{"temperature", 0.9}, {"loss_scale", "last_round"}, {"logging_steps", 1}, {"lora_dropout", 0}},
     .asks_rows = true,
     .compares_rows = false});

}  // namespace
}  // namespace apus
