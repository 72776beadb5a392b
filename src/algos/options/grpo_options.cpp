// SPDX-License-Identifier: Apache-2.0
#include "algos/options/grpo_options.h"

#include <numeric>

#include "algos/advantages.h"
#include "algos/options/preference_options.h"
#include "algos/options/reward_models.h"
#include "base/error.h"
#include "base/nearest.h"
#include "environment/plugin.h"
#include "train/options/algorithm_options.h"

namespace apus {

void GrpoOptions::fields(OptionTable& v) {
  v.group("Rollout");
  v("num_generations", num_generations, "answers to each question, which are compared with one another")
      .common()
      .noted();
  v("num_generations_eval", num_generations_eval, "answers to each question in evaluations")
      .at_least(1)
      .shown_default("num_generations");
  v("max_completion_length", max_completion_length, "longest answer in tokens").common().at_least(1).noted();
  v("steps_per_generation", steps_per_generation, "micro-batches that a round of answers gives")
      .common()
      .at_least(1)
      .shown_default("gradient_accumulation_steps");
  v("generation_batch_size", generation_batch_size, "answers of a round over all processes, instead of the former")
      .at_least(1);
  v("num_iterations", num_iterations, "times that a round of answers is learnt from").common().at_least(1).noted();
  v("dynamic_sample", dynamic_sample, "leave out questions whose answers are all worth the same, and ask others")
      .noted();
  v("max_resample_times", max_resample_times,
    "--dynamic_sample: how often others are asked; what is missing then is filled with what was left out")
      .at_least(1);
  v("overlong_filter", overlong_filter, "learn nothing from answers that were cut at max_completion_length").noted();
  v("log_completions", log_completions, "write all answers with their rewards to completions.jsonl").common();
  v("replay_rollouts", replay_rollouts,
    "learn from the answers of a file instead: rows {\"group\", \"prompt_ids\", \"completion_ids\", \"reward\", "
    "\"logprobs\"}, one update for each pass over them");
  v("dump_rollouts", dump_rollouts, "add the answers of every round to a file that --replay_rollouts reads");
  share_prefix_field(v, share_prefix);
  v("deterministic_rollout", deterministic_rollout,
    "engine and trainer give a token the same bits, in bfloat16 too; a run in which a log-probability differs ends");
  RouterReplayOptions::fields(v);
  v("max_staleness", max_staleness,
    "rounds that are answered before it is their turn: by weights that are so many rounds old then; 0: by those that "
    "learn from them")
      .at_least(0)
      .at_most(64)
      .shown_default("0; with async_generate or partial_rollout 1")
      .must_match();
  v("async_generate", async_generate,
    "the next round is answered before the weights learn from this one (max_staleness 1): by servers "
    "(--vllm_mode server) while the trainer works; in this process nothing overlaps")
      .must_match();
  v("partial_rollout", partial_rollout,
    "answers come in max_staleness + 1 pieces, each by the weights of its time: a round says its last piece when it is "
    "its turn, while later ones go on")
      .must_match();
  loss_fields(v);
  RewardOptions::fields(v);
  PluginOptions::fields(v);
  EnvironmentOptions::fields(v);
  RolloutServerOptions::fields(v);
  ChordOptions::fields(v);
  other_fields(v);
}

namespace {
// "grpo: group; rloo: none"
std::string scales_by_default() {
  std::vector<std::string> out;
  for (const std::string& name : estimator_names()) out.push_back(name + ": " + estimator_named(name).scale);
  return join(out, "; ");
}
}  // namespace

void GrpoOptions::loss_fields(OptionTable& v) {
  v.group("Loss");
  v("advantage_estimator", advantage_estimator, "what an answer is better by than expected (docs/grpo.md)")
      .choices(estimator_names())
      .noted();
  v("scale_rewards", scale_rewards, "by what deviation advantages are divided; gdpo: that of each reward function")
      .common()
      .choices({"group", "batch", "none", "gdpo"})
      .shown_default(scales_by_default())
      .noted();
  v("loss_type", loss_type, "the loss, and what it is divided by (docs/grpo.md)")
      .common()
      .choices({"grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "fipo", "real", "gmpo", "dppo_tv", "dppo_kl", "dro",
                "luspo", "vespo", "clip_cov", "kl_cov"})
      .noted();
  v("importance_sampling_level", importance_sampling_level,
    "the ratio of new to old probability: of each token, of the whole answer (GSPO), or its value with each token's "
    "gradient")
      .choices({"token", "sequence", "sequence_token"})
      .noted();
  v("epsilon", epsilon, "a ratio below 1 - epsilon is not pushed further down").above(0).noted();
  v("epsilon_high", epsilon_high, "a ratio above 1 + epsilon_high is not pushed further up; cispo: the bound itself")
      .above(0)
      .shown_default("epsilon; cispo: 5")
      .noted();
  v("delta", delta, "no ratio counts for more, also of bad answers (dual clip)").above(1).noted();
  v("tau_pos", tau_pos, "sapo: how fast the gate closes for good answers").above(0).noted();
  v("tau_neg", tau_neg, "sapo: how fast the gate closes for bad answers").above(0).noted();
  v("real_tau", real_tau, "real: temperature of the scores").above(0).noted();
  v("fipo_decay_rate", fipo_decay_rate, "fipo: tokens after which what comes later counts half").above(0).noted();
  v("fipo_clip_range", fipo_clip_range, "fipo: how far the weight may be from 1").at_least(0).at_most(1).noted();
  v("fipo_clip_high_only", fipo_clip_high_only, "fipo: no weight below 1").noted();
  v("fipo_safety_threshold", fipo_safety_threshold, "fipo: bad tokens with a higher ratio get no weight above 1")
      .above(0)
      .noted();
  v("dro_beta", dro_beta, "dro: weight of the squared log-ratio").above(0).noted();
  v("vespo_k_pos", vespo_k_pos, "vespo: k of good answers").above(0).noted();
  v("vespo_lambda_pos", vespo_lambda_pos, "vespo: lambda of good answers").above(0).noted();
  v("vespo_k_neg", vespo_k_neg, "vespo: k of bad answers").above(0).noted();
  v("vespo_lambda_neg", vespo_lambda_neg, "vespo: lambda of bad answers").above(0).noted();
  v("cov_ratio", cov_ratio, "clip_cov, kl_cov: share of the update's tokens").above(0).at_most(1).noted();
  v("clip_cov_low", clip_cov_low, "clip_cov: tokens of less covariance are not dropped").noted();
  v("clip_cov_high", clip_cov_high, "clip_cov: tokens of more covariance are not dropped").noted();
  v("kl_cov_coef", kl_cov_coef, "kl_cov: how strongly the chosen tokens are held to the old policy")
      .at_least(0)
      .noted();
  v("teacher_model", teacher_model,
    "a model that knows the policy's tokens: what a token is likelier to it than to the policy is added to the token's "
    "advantage (on-policy distillation)")
      .noted();
  v("teacher_adapters", teacher_adapters, "a LoRA adapter on --teacher_model").noted();
  v("teacher_kl_coef", teacher_kl_coef, "a factor for what the teacher adds to a token's advantage")
      .at_least(0)
      .noted();
  TeacherSayOptions::fields(v);
  v.no_effect({"teacher_model_type", "teacher_deepspeed"}, "a checkpoint's config.json says what it is");
  v.no_effect({"offload_teacher_model"},
              "a teacher is never changed: on a processor its weights stay in the mapped file");
  v.refuse({"teacher_model_server", "teacher_tag_key", "teacher_model_revision"},
           "the teacher runs in this process: --teacher_model DIR");
  v("beta", beta, "weight of the divergence from the reference; 0: there is none").common().at_least(0).noted();
  v("kl_in_reward", kl_in_reward, "take the divergence off the reward instead of adding it to the loss")
      .shown_default("false; " + estimators_with(&Estimator::kl_in_reward) + ": true")
      .noted();
  v("kl_estimator", kl_estimator, "how the divergence from the reference is estimated: k1, k2 or k3")
      .choices({"k1", "k2", "k3"})
      .shown_default("k3; in the reward k1")
      .noted();
  v("bound_k3", bound_k3,
    "hold k3 of a token to [-10, 10], as ms-swift and verl do; false: leave it as it is, as TRL does")
      .noted();
  v("use_unbiased_kl", use_unbiased_kl, "weigh the divergence in the loss by the ratio").noted();
  v("entropy_coef", entropy_coef, "weight of a bonus for uncertainty").at_least(0).noted();
  v("top_entropy_quantile", top_entropy_quantile, "learn only from this share of the tokens, the most uncertain ones")
      .above(0)
      .at_most(1)
      .noted();
  v("log_entropy", log_entropy, "log the mean uncertainty of the tokens");
  v("rollout_importance_sampling_mode", rollout_importance_sampling_mode,
    "correct for an engine that gave other probabilities than the trainer: weights are bounded, or what is outside "
    "the bounds is left out")
      .choices({"token_truncate", "token_mask", "sequence_truncate", "sequence_mask"})
      .noted();
  v("rollout_importance_sampling_threshold", rollout_importance_sampling_threshold,
    "rollout_importance_sampling_mode: the upper bound")
      .above(0)
      .noted();
  v("rollout_importance_sampling_low", rollout_importance_sampling_low,
    "rollout_importance_sampling_mode: the masks' lower bound (IcePop)")
      .at_least(0)
      .noted();
  v("rollout_importance_sampling_product", rollout_importance_sampling_product,
    "the weight of an answer is the product of those of its tokens, not their geometric mean")
      .noted();
  v("log_rollout_offpolicy_metrics", log_rollout_offpolicy_metrics,
    "log how engine and trainer differ: divergences, perplexities, share of the sample that counts");
  v("off_policy_sequence_mask_delta", off_policy_sequence_mask_delta,
    "leave out bad answers that have become less likely by more than this, as the mean over their tokens")
      .at_least(0)
      .noted();
}

void GrpoOptions::other_fields(OptionTable& v) {
  v.refuse({"sync_ref_model", "ref_model_sync_steps", "ref_model_mixup_alpha"},
           "the reference stays as it is; a later run may begin from this one's checkpoint with --ref_model");
}

std::vector<OtherModel> GrpoOptions::other_models() {
  std::vector<OtherModel> out = reward_models(*this);
  if (teacher_model)
    out.push_back({.role = "teacher",
                   .flag = "--teacher_model",
                   .folder = &*teacher_model,
                   .adapter = teacher_adapters.empty() ? "" : teacher_adapters[0]});
  return out;
}

bool GrpoOptions::asks_greedy() const { return estimator_named(advantage_estimator).asks_greedy; }

std::string GrpoOptions::scale() const {
  if (scale_rewards) return *scale_rewards;
  if (loss_type == "real") return "none";
  return estimator_named(advantage_estimator).scale;
}

bool GrpoOptions::kl_rewarded() const {
  if (scale() == "gdpo") return false;
  return kl_in_reward.value_or(estimator_named(advantage_estimator).kl_in_reward);
}

std::string GrpoOptions::kl() const { return kl_estimator.value_or(kl_rewarded() ? "k1" : "k3"); }

double GrpoOptions::upper_epsilon() const { return epsilon_high.value_or(loss_type == "cispo" ? 5 : epsilon); }

void GrpoOptions::check() const {
  RewardOptions::check();
  EnvironmentOptions::check();
  RolloutServerOptions::check();
  ChordOptions::check();
  require(chord_sft_dataset.empty() || !brings_rows(), Fault::Usage,
          "--replay_rollouts learns from the rows of one file, and --chord_sft_dataset shows others: give one of them");
  require(
      num_generations > 1 || teacher_model, Fault::Usage,
      "--num_generations must be greater than 1: an answer is judged by the others to the same question, and a group "
      "of one has none. 8 is usual");
  require(brings_rows() || !reward_funcs.empty() || !reward_model.empty() || several_turns() || teacher_model,
          Fault::Usage,
          "--reward_funcs is needed: what makes an answer good, e.g. accuracy, or external:./reward.py; or "
          "--reward_model, a model that judges; or --environment, which gives rewards of its own; or --teacher_model");
  require(num_generations > 1 || estimator_named(advantage_estimator).takes_one_answer, Fault::Usage,
          "--advantage_estimator ", advantage_estimator,
          " compares answers, and --num_generations 1 gives none to compare with");
  TeacherSayOptions::check(teacher_model.has_value(),
                           brings_rows() || !reward_funcs.empty() || !reward_model.empty() || several_turns());
  require(!reweights() || (loss_type != "real" && loss_type != "fipo" && !off_policy_sequence_mask_delta), Fault::Usage,
          "--advantage_reweight rlsd gives tokens of an answer advantages of their own, and ",
          off_policy_sequence_mask_delta ? "--off_policy_sequence_mask_delta" : "--loss_type " + loss_type,
          " looks at one of the whole answer: leave one of them out");
  require(teacher_adapters.size() <= (teacher_model ? 1u : 0u), Fault::Usage,
          "--teacher_adapters is one adapter on --teacher_model: give that model, and one adapter");
  require(!(brings_rows() && deterministic_rollout), Fault::Usage,
          "--deterministic_rollout compares the engine with the trainer, and --replay_rollouts has no engine");
  RouterReplayOptions::check(brings_rows(), deterministic_rollout);
  require(!async_generate || rounds_ahead() > 0, Fault::Usage,
          "--async_generate true is --max_staleness 1, and --max_staleness 0 asks for none of it: give one of them");
  require(
      !partial_rollout || rounds_ahead() > 0, Fault::Usage,
      "--partial_rollout true goes on with answers in later rounds, and --max_staleness 0 has none: give 1 or more");
  require(!partial_rollout || !several_turns(), Fault::Usage,
          "--partial_rollout goes on with an answer of one turn, and --environment replies to whole ones: give one of "
          "them");
  require(!partial_rollout || stop_words.empty(), Fault::Usage,
          "--partial_rollout may end a piece within one of --stop_words, which would not be found: give one of them");
  require(rounds_ahead() == 0 || !brings_rows(), Fault::Usage,
          "--max_staleness is of answers that are rolled out, and --replay_rollouts generates nothing");
  require(rounds_ahead() == 0 || !deterministic_rollout, Fault::Usage,
          "--deterministic_rollout compares the engine with the trainer, whose weights have moved on with "
          "--max_staleness: give one of them");
  require(rounds_ahead() == 0 || !log_rollout_offpolicy_metrics || rollout_importance_sampling_mode, Fault::Usage,
          "--log_rollout_offpolicy_metrics compares the policy before the update with that which answered, and with "
          "--max_staleness the ratio has both in one: give --rollout_importance_sampling_mode, which takes them apart");
  require(!(brings_rows() && several_turns()), Fault::Usage,
          "--replay_rollouts generates nothing, and --environment replies to what is generated: give one of them");
  require(!(steps_per_generation && generation_batch_size), Fault::Usage,
          "--steps_per_generation and --generation_batch_size say the same thing: give one of them");
  require(kl_rewarded() || beta == 0 || kl() != "k1", Fault::Usage,
          "--kl_estimator k1 in the loss has no gradient on average: the policy would not be held at all. Take k3 (or "
          "k2), or --kl_in_reward true");
  require(!use_unbiased_kl || !kl_rewarded(), Fault::Usage, "--use_unbiased_kl is of the divergence in the loss");
  require(!(scale() == "gdpo" && kl_in_reward.value_or(false)), Fault::Usage,
          "--scale_rewards gdpo normalises every reward function apart, and the divergence is none: leave "
          "--kl_in_reward out");
  require(!(scale() == "gdpo" && brings_rows()), Fault::Usage,
          "--replay_rollouts rows hold one reward: --scale_rewards gdpo has nothing to normalise apart");
  require(loss_type != "real" || scale() == "none", Fault::Usage,
          "--loss_type real asks only for the sign of an advantage: --scale_rewards none");
  require(loss_type != "real" || !of_agents(), Fault::Usage,
          "--loss_type real tells whole answers of a group apart, and an agent's may be several conversations: take "
          "another --loss_type");
  require(clip_cov_low < clip_cov_high, Fault::Usage, "--clip_cov_low ", clip_cov_low,
          " must be below --clip_cov_high ", clip_cov_high);
  require(!delta || *delta > 1 + upper_epsilon() || loss_type == "fipo", Fault::Usage, "--delta ", delta.value_or(0),
          " must be above 1 + epsilon_high, which is ", 1 + upper_epsilon());
  require(!(asks_greedy() && brings_rows()), Fault::Usage, "--advantage_estimator ", advantage_estimator,
          " compares with the likeliest answer, which --replay_rollouts does not hold");
  require(!(num_iterations > 1 && brings_rows()), Fault::Usage,
          "--replay_rollouts makes one update of each pass over the file: --num_train_epochs says how many passes, "
          "--num_iterations is of answers that are rolled out");
  require(!(dynamic_sample && brings_rows()), Fault::Usage,
          "--dynamic_sample asks further questions, and --replay_rollouts generates nothing");
  require(
      stop_words.empty() || !several_turns(), Fault::Usage,
      "--stop_words end an answer in the middle of its message, and --environment replies to whole ones: give one of "
      "them");
  check_plugins(*this, reward_funcs, this);
}

int64_t GrpoOptions::micro_batches_of_round(const LoopOptions& loop, int64_t ranks) const {
  const int64_t batch = loop.per_device_train_batch_size;
  int64_t micro_batches = steps_per_generation.value_or(loop.accumulation(ranks));
  if (generation_batch_size) {
    require(*generation_batch_size % (batch * ranks) == 0, Fault::Usage, "--generation_batch_size ",
            *generation_batch_size, " is no multiple of the ", batch * ranks,
            " answers that all processes take at once (--per_device_train_batch_size ", batch, " on ", ranks, ")");
    micro_batches = *generation_batch_size / (batch * ranks);
  }
  return micro_batches;
}

// As few neighbours as have whole groups together. Their number divides that of all, if all have whole groups.
int64_t GrpoOptions::group_sharers(const LoopOptions& loop, int64_t ranks) const {
  if (brings_rows()) return 1;
  const int64_t answers = loop.per_device_train_batch_size * micro_batches_of_round(loop, ranks);
  return num_generations / std::gcd(answers, num_generations);
}

GrpoOptions::Division GrpoOptions::division(const LoopOptions& loop, int64_t ranks) const {
  const int64_t batch = loop.per_device_train_batch_size, accumulation = loop.accumulation(ranks);
  const int64_t micro_batches = micro_batches_of_round(loop, ranks);
  require(micro_batches % accumulation == 0, Fault::Usage, "a round gives ", micro_batches,
          " micro-batches, which are no whole number of updates of ", accumulation,
          " (--gradient_accumulation_steps): give --steps_per_generation ", accumulation, " or ", 2 * accumulation);
  const int64_t answers = batch * micro_batches;
  std::vector<std::string> others;
  for (int64_t g = teacher_model ? 1 : 2; g <= answers * ranks && others.size() < 12; ++g)
    if (answers * ranks % g == 0) others.push_back(std::to_string(g));
  const std::string processes = ranks > 1 ? str(" x ", ranks, " processes") : "";
  require(answers * ranks % num_generations == 0, Fault::Usage, "a round has ", answers * ranks,
          " answers (--per_device_train_batch_size ", batch, " x ", micro_batches, " micro-batches", processes,
          "), which are no whole number of groups of --num_generations ", num_generations, ". ",
          others.empty() ? std::string("Raise --per_device_train_batch_size or --gradient_accumulation_steps")
                         : "It could be " + join(others),
          "; or make the answers a multiple of ", num_generations);
  require(loss_type != "real" || batch % num_generations == 0, Fault::Usage,
          "--loss_type real needs whole groups in a micro-batch: --per_device_train_batch_size ", batch,
          " is no multiple of --num_generations ", num_generations);
  const int64_t sharers = group_sharers(loop, ranks);
  require(sharers == 1 || !dynamic_sample, Fault::Usage,
          "--dynamic_sample true puts whole groups in the place of others, and a process has ", answers,
          " answers of a round, no multiple of --num_generations ", num_generations,
          ": raise --steps_per_generation or --gradient_accumulation_steps");
  return {.questions = answers * sharers / num_generations,
          .micro_batches = micro_batches,
          .updates = micro_batches / accumulation,
          .sharers = sharers};
}

void GrpoOptions::check(const LoopOptions& loop, int64_t ranks) const {
  if (brings_rows()) return;
  check_updates(division(loop, ranks).updates * num_iterations, "--num_iterations 2, or --steps_per_generation");
}

namespace {

const RegisterAlgorithmOptions<GrpoOptions> grpo(
    "grpo",
    {.summary = "answers are rolled out and rewarded; what is better than others to the same question becomes likelier",
     .command = "rlhf",
     .examples = {"rlhf --rlhf_type grpo --model DIR --dataset questions.jsonl --reward_funcs accuracy format",
                  "rlhf --rlhf_type grpo --model DIR --dataset questions.jsonl --reward_funcs external:./reward.py"},
     .defaults = {{"temperature", 0.9},
                  {"loss_scale", "last_round"},
                  {"logging_steps", 1},
                  // What is trained is what answered: noise would be a difference between the two.
                  {"lora_dropout", 0}},
     .asks_rows = true,
     .compares_rows = false,
     .shares_answers = true});

}  // namespace
}  // namespace apus
