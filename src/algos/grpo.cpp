// SPDX-License-Identifier: Apache-2.0
#include "algos/grpo.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "algos/grpo_columns.h"
#include "algos/policy/teacher_say.h"
#include "algos/policy/token_picks.h"
#include "algos/replay.h"
#include "algos/row_sharers.h"
#include "base/log.h"
#include "base/random.h"
#include "ops/ops.h"
#include "train/idle_pass.h"
#include "train/label_logprobs.h"
#include "train/rollout.h"
#include "train/shared_prefix.h"

namespace apus {
namespace {

// Of the whole update: 1 where a token is among those that a loss treats apart, or is uncertain enough to be learnt.
constexpr const char* kPicked = "picked";
constexpr const char* kUncertain = "uncertain";

PolicyOptions policy_options(const GrpoOptions& o) {
  PolicyOptions p;
  p.level = ratio_level_named(o.importance_sampling_level);
  p.epsilon = o.epsilon, p.epsilon_high = o.upper_epsilon(), p.delta = o.delta;
  p.tau_pos = o.tau_pos, p.tau_neg = o.tau_neg, p.real_tau = o.real_tau;
  p.fipo_decay_rate = o.fipo_decay_rate, p.fipo_clip_range = o.fipo_clip_range;
  p.fipo_safety_threshold = o.fipo_safety_threshold, p.fipo_clip_high_only = o.fipo_clip_high_only;
  p.vespo_k_pos = o.vespo_k_pos, p.vespo_k_neg = o.vespo_k_neg;
  p.vespo_lambda_pos = o.vespo_lambda_pos, p.vespo_lambda_neg = o.vespo_lambda_neg;
  p.dro_beta = o.dro_beta, p.cov_ratio = o.cov_ratio, p.kl_cov_coef = o.kl_cov_coef;
  p.clip_cov_low = o.clip_cov_low, p.clip_cov_high = o.clip_cov_high;
  return p;
}

// A reward model reads as many answers at once as the policy learns from: it needs less memory for them.
RoundOptions round_options(const GrpoOptions& o, int64_t sharers, int64_t micro_batch) {
  return {.rewards = o,
          .environment = o,
          .servers = o,
          .each = o.generations(false),
          .each_in_evaluation = o.generations(true),
          .asks_greedy = o.asks_greedy(),
          .resamples = o.dynamic_sample,
          .max_resample_times = o.max_resample_times,
          .scored_at_once = micro_batch,
          .sharers = sharers,
          .texts_alone = o.rounds_ahead() > 0
                             ? "--max_staleness (also by --async_generate or --partial_rollout) keeps rounds "
                               "that wait, in memory and in checkpoints, as their tokens"
                         : o.share_prefix.value_or(false) ? "--share_prefix computes beginnings of text once"
                                                          : texts_alone(o, o.dump_rollouts.has_value())};
}

}  // namespace

Grpo::Grpo(GrpoOptions options)
    : o_(std::move(options)),
      info_(policy_loss_named(o_.loss_type)),
      policy_(policy_options(o_)),
      correction_(correction_named(o_.rollout_importance_sampling_mode.value_or(""))),
      replay_(o_) {}

void Grpo::begin(const RunSetting& setting) {
  rank_ = setting.rank, ranks_ = setting.ranks, seed_ = setting.seed, device_ = setting.device;
  temperature_ = setting.sampling.temperature, tokenizer_ = setting.tokenizer, output_dir_ = setting.output_dir;
  micro_batch_ = setting.loop.per_device_train_batch_size;
  shares_ = o_.share_prefix.value_or(setting.may_share_prefix && !o_.deterministic_rollout && !o_.teacher_model);
  if (o_.brings_rows()) {
    replayed_ = read_rollouts(*o_.replay_rollouts, 2);
    replayed_batches_ = most_replayed_batches(replayed_, micro_batch_, ranks_);
    return;
  }
  const GrpoOptions::Division division = o_.division(setting.loop, ranks_);
  updates_ = division.updates * o_.num_iterations, questions_ = division.questions, sharers_ = division.sharers;
  rounds_ = std::make_unique<AnswerRounds>(round_options(o_, sharers_, micro_batch_), setting);
  if (o_.rounds_ahead() > 0 && !o_.draws_beside() && rank_ == 0)
    log_warning(
        o_.server_urls().empty()
            ? "rounds are answered ahead of their turn (--max_staleness, --async_generate, --partial_rollout) by the "
              "engine in this process, which works between two updates: nothing overlaps, and answers are only older. "
              "`apus rollout` and --vllm_mode server draw them while the trainer works"
            : "rounds are answered ahead of their turn (--max_staleness, --async_generate), but not while the trainer "
              "works: --partial_rollout, --dynamic_sample and an --advantage_estimator that asks for the likeliest "
              "answer "
              "too ask again for a round");
  if (o_.rounds_ahead() > 0)
    ahead_ = std::make_unique<RoundsAhead>(RoundsAhead::Shape{.ahead = o_.rounds_ahead(),
                                                              .questions = questions_,
                                                              .updates = updates_,
                                                              .rank = rank_,
                                                              .ranks = ranks_,
                                                              .longest = o_.max_completion_length});
}

void Grpo::settle(Actors& actors) {
  if (ahead_) ahead_->settle(actors);
}

Json Grpo::state() const {
  Json state = ahead_ ? ahead_->state() : Json::object();
  if (chord_) state["chord"] = chord_->state();
  return state;
}

void Grpo::restore(const Json& state) {
  if (ahead_) ahead_->restore(state);
  if (chord_ && state.contains("chord")) chord_->restore(state["chord"]);
}

LearnsShownRows::Wanted Grpo::shown_rows() const {
  return {.datasets = o_.chord_sft_dataset, .rows = o_.chord_sft_per_device_train_batch_size};
}

void Grpo::show(SampleSource& rows) { chord_ = std::make_unique<Chord>(o_, rows, device_); }

std::unique_ptr<SampleSource> Grpo::own_rows() {
  return std::make_unique<ReplayedAnswers>(replayed_, micro_batch_, rank_, ranks_);
}

std::vector<Sample> Grpo::encode(const Row& row, const Encoder& encoder) const {
  return {rounds_ ? rounds_->question(row, encoder) : encoder.encode_prompt(row)};
}

std::optional<int64_t> Grpo::batches_per_collection() const {
  return std::max<int64_t>(1, o_.brings_rows() ? replayed_batches_ : questions_);
}

std::vector<Update> Grpo::collect(Actors& actors, std::vector<Samples> micro_batches) {
  const bool training = at::GradMode::is_enabled();
  replay_.begin(actors);
  rlsd_lambda_ = o_.rlsd_lambda_at(actors.step);
  AnswerRounds::Round round = round_of(actors, std::move(micro_batches), training);
  const RowSharers sharers(actors.sharers);
  const RankSum over_ranks = [&](double x) { return training ? actors.summed(x) / sharers.count() : x; };

  auto updates = divided(round.answers, static_cast<uint64_t>(actors.step), training);
  const std::vector<Answer> as_rewarded = round.answers;
  const ScoredAnswers rewarded = whole(as_rewarded, actors, training).scored;
  for (auto& update : updates) {
    const size_t passes = passes_in_step(actors.policy, update.size(), actors.data_ranks);
    for (Part& part : update) {
      add_logprobs(actors, part);
      if (o_.kl_rewarded() && o_.beta > 0) take_divergence(part, round.answers);
    }
    for (size_t i = update.size(); i < passes; ++i) {
      Part idle{.answers = {}, .batch = idle_batch().to(device_)};
      add_logprobs(actors, idle);
    }
  }
  // Every sharer counts whole groups.
  add_advantages(updates, whole(round.answers, actors, training),
                 [&](double x) { return over_ranks(x) / static_cast<double>(training ? sharers_ : 1); });
  note(round, as_rewarded, rewarded, over_ranks, actors, training);

  std::vector<Update> out;
  for (int64_t pass = 0; pass < (training ? o_.num_iterations : 1); ++pass)
    for (const auto& update : updates) {
      Update& batches = out.emplace_back();
      for (const Part& part : update) batches.push_back(part.batch);
      if (!chord_ || !training) continue;
      double divisor = 0;
      for (const Batch& batch : batches) divisor += count(batch);
      chord_->add_to(batches, actors, actors.step + std::ssize(out) - 1, actors.summed(divisor));
    }
  out.resize(training ? static_cast<size_t>(updates_) : out.size());
  if (!training && looks_at_updates())
    for (Update& batches : out) mark_tokens(actors, batches, over_ranks);
  return out;
}

PolicyTokens Grpo::tokens_of(const Batch& batch, const at::Tensor& logprob_T) const {
  const at::Device device = batch.label_T.device();
  const std::vector<int64_t> lengths(batch.step.length_q.begin(), batch.step.length_q.end());
  const at::Tensor sequence_T = at::repeat_interleave(at::tensor(lengths, at::kLong)).to(device);
  const at::Tensor index_N = ops::labelled_rows(batch.label_T);
  PolicyTokens t;
  t.sequences = static_cast<int64_t>(lengths.size());
  t.sequence_N = sequence_T.index_select(0, index_N);
  t.logprob_N = logprob_T.index_select(0, index_N);
  t.old_N = grpo_column::is_in(batch, grpo_column::kOld)
                ? batch.token_columns.at(grpo_column::kOld).index_select(0, index_N)
                : t.logprob_N.detach();
  t.advantage_N = batch.sequence_columns.at(grpo_column::kAdvantage).index_select(0, t.sequence_N);
  if (grpo_column::is_in(batch, grpo_column::kTeacher)) {
    const at::Tensor gap_N = batch.token_columns.at(grpo_column::kTeacher).index_select(0, index_N) - t.old_N;
    if (o_.reweights())
      t.advantage_N = reweighted_advantage(t.advantage_N, gap_N, rlsd_lambda_, o_);
    else if (!o_.gates())
      t.advantage_N = t.advantage_N + o_.teacher_kl_coef * gap_N;
  }
  if (const auto share = batch.sequence_columns.find(grpo_column::kShare); share != batch.sequence_columns.end())
    t.share_S = share->second;
  t.group_S = at::tensor(batch.groups, at::kLong).to(device);
  t.groups = batch.groups.empty() ? 0 : batch.groups.back() + 1;
  return t;
}

double Grpo::count(const Batch& batch) const {
  if (Chord::shows(batch)) return 0;
  const auto tokens = static_cast<double>(batch.trained);
  const auto share = batch.sequence_columns.find(grpo_column::kShare);
  const double answers = share == batch.sequence_columns.end() ? static_cast<double>(batch.step.length_q.size())
                                                               : share->second.sum().item<double>();
  switch (info_.normaliser) {
    case Normaliser::Tokens:
      return tokens;
    case Normaliser::MicroBatch:
      return tokens > 0 ? 1 : 0;
    case Normaliser::Constant:
      return answers * static_cast<double>(o_.max_completion_length);
    case Normaliser::Sequence:
    case Normaliser::SequenceSums:
      return answers;
    case Normaliser::Groups:
      break;
  }
  const at::Tensor advantage_S = batch.sequence_columns.at(grpo_column::kAdvantage).to(at::kCPU);
  std::map<int64_t, int> signs;  // of each group: 1 with a good answer, 2 with a bad one
  for (size_t s = 0; s < batch.groups.size(); ++s) {
    const double a = advantage_S[static_cast<int64_t>(s)].item<double>();
    signs[batch.groups[s]] |= a > 0 ? 1 : a < 0 ? 2 : 0;
  }
  return static_cast<double>(std::count_if(signs.begin(), signs.end(), [](const auto& g) { return g.second == 3; }));
}

bool Grpo::looks_at_updates() const { return info_.pick_by || o_.top_entropy_quantile < 1; }

void Grpo::look_at(Actors& actors, Update& batches) {
  const RowSharers sharers(actors.sharers);
  mark_tokens(actors, batches, [&](double x) { return actors.summed(x) / sharers.count(); });
}

// One more pass over the update, whose numbers are compared on the host.
void Grpo::mark_tokens(Actors& actors, Update& batches, const RankSum& over_ranks) const {
  std::vector<PolicyTokens> tokens;
  std::vector<at::Tensor> entropies, advantages, logprobs, index_of;
  std::vector<Batch*> of;
  const auto own = static_cast<size_t>(
      std::count_if(batches.begin(), batches.end(), [](const Batch& batch) { return !Chord::shows(batch); }));
  const size_t passes = passes_in_step(actors.policy, own, actors.data_ranks);
  for (Batch& batch : batches) {
    if (Chord::shows(batch)) continue;
    const ops::HeadLogprob head =
        label_head(actors.policy, Reference::of(actors.policy).head_factors(with_experts(batch)), batch.label_T,
                   batch.step, temperature_, o_.top_entropy_quantile < 1);
    const at::Tensor index_N = ops::labelled_rows(batch.label_T);
    PolicyTokens t = tokens_of(batch, head.logprob_T);
    for (at::Tensor* x : {&t.logprob_N, &t.old_N, &t.advantage_N, &t.sequence_N}) *x = x->to(at::kCPU);
    of.push_back(&batch), index_of.push_back(index_N.to(at::kCPU));
    advantages.push_back(t.advantage_N), logprobs.push_back(t.logprob_N), tokens.push_back(std::move(t));
    if (head.entropy_T.defined()) entropies.push_back(head.entropy_T.index_select(0, index_N).to(at::kCPU));
  }
  for (size_t i = own; i < passes; ++i) Reference::of(actors.policy).head_factors(idle_batch().to(device_));
  const auto keep = [&](const char* name, const TokenPicks& picks) {
    for (size_t i = 0; i < of.size(); ++i)
      of[i]->token_columns[name] =
          at::zeros({of[i]->label_T.size(0)}).index_copy_(0, index_of[i], picks[i].to(at::kFloat)).to(device_);
  };
  if (o_.top_entropy_quantile < 1) keep(kUncertain, most_uncertain(entropies, o_.top_entropy_quantile, over_ranks));
  if (!info_.pick_by) return;
  UpdateMeans means;
  means.advantage = mean_of_update(advantages, over_ranks), means.logprob = mean_of_update(logprobs, over_ranks);
  std::vector<at::Tensor> values;
  for (const PolicyTokens& t : tokens) values.push_back(info_.pick_by(t, policy_, means));
  keep(kPicked, highest_tokens(values, policy_.cov_ratio, over_ranks));
}

at::Tensor Grpo::token_losses(const PolicyTokens& t, const at::Tensor& uncertain_N, const at::Tensor& entropy_N) const {
  at::Tensor loss_N = info_.token_loss(t, policy_);
  if (uncertain_N.defined()) loss_N = loss_N * uncertain_N;
  return o_.entropy_coef > 0 ? loss_N - o_.entropy_coef * entropy_N : loss_N;
}

Loss Grpo::loss(Actors& actors, Batch& batch, const Forward& forward) {
  if (Chord::shows(batch)) return chord_->loss(actors, batch, forward);
  tell_experts(batch);
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const bool entropy = o_.log_entropy || o_.entropy_coef > 0;
  const ops::HeadLogprob head = label_head(actors.policy, actors.policy.head_factors(hidden_TD, batch.step),
                                           batch.label_T, batch.step, temperature_, entropy);
  Loss out{.sum = (head.logprob_T * 0).sum(), .metrics = std::exchange(noted_, {})};
  const bool collected =
      batch.sequence_columns.count(grpo_column::kAdvantage) > 0;  // else only the passes of others are made
  if (batch.trained == 0 || !collected) return out;
  PolicyTokens t = tokens_of(batch, head.logprob_T);
  const at::Tensor index_N = ops::labelled_rows(batch.label_T);
  const auto of_tokens = [&](const at::Tensor& x_T) { return x_T.index_select(0, index_N); };
  const auto column = [&](const char* name) {
    return grpo_column::is_in(batch, name) ? of_tokens(batch.token_columns.at(name)) : at::Tensor();
  };
  if (info_.pick_by) t.picked_N = column(kPicked).gt(0);
  const at::Tensor entropy_N = entropy ? of_tokens(head.entropy_T) : at::Tensor();
  const at::Tensor count = at::tensor(static_cast<double>(t.old_N.numel()), at::kFloat);
  const auto mean_of = [&](const at::Tensor& x_N) { return Ratio{x_N.detach().sum(), count}; };

  at::Tensor loss_N = token_losses(t, column(kUncertain), entropy_N);
  if (grpo_column::is_in(batch, grpo_column::kReference)) {
    at::Tensor kl_N = kl_of_tokens(t.logprob_N, of_tokens(batch.token_columns.at(grpo_column::kReference)),
                                   kl_estimate_named(o_.kl()), o_.bound_k3);
    out.metrics["kl"] = mean_of(kl_N);
    if (o_.use_unbiased_kl) kl_N = kl_N * t.log_ratio().exp();
    if (!o_.kl_rewarded()) loss_N = loss_N + o_.beta * kl_N;
  }
  if (grpo_column::is_in(batch, grpo_column::kTeacher)) {
    const at::Tensor teacher_N = of_tokens(batch.token_columns.at(grpo_column::kTeacher));
    out.metrics["teacher_kl"] = mean_of(t.old_N - teacher_N);
    if (o_.gates()) loss_N = loss_N + o_.sdar_loss_coef * gated_distance(t.logprob_N, teacher_N, o_.sdar_gate_beta);
  }
  if (grpo_column::is_in(batch, grpo_column::kEngine) && !learns_from_sampler()) {
    const at::Tensor engine_N = of_tokens(batch.token_columns.at(grpo_column::kEngine));
    const auto mismatch = mismatch_metrics(t, engine_N);
    out.metrics["rollout_mismatch/mean"] = mean_of((t.old_N - engine_N).abs());
    out.metrics["rollout_mismatch/max"] = {mismatch.at("abs_max"), at::tensor(1.0)};
    if (o_.deterministic_rollout) require_agreement(mismatch.at("abs_max").item<double>());
    if (o_.log_rollout_offpolicy_metrics)
      for (const auto& [name, value] : mismatch) out.metrics["rollout_correction/" + name] = {value, at::tensor(1.0)};
    if (correction_ != Correction::None)
      loss_N = loss_N * correction_weights(t, engine_N, correction_,
                                           {.high = o_.rollout_importance_sampling_threshold,
                                            .low = o_.rollout_importance_sampling_low,
                                            .product = o_.rollout_importance_sampling_product});
  }
  if (o_.off_policy_sequence_mask_delta) loss_N = loss_N * on_policy_enough(t, *o_.off_policy_sequence_mask_delta);
  if (chord_) loss_N = loss_N * Chord::share_of_rewards(batch);
  out.sum = (loss_N * token_factors(t, info_.normaliser)).sum();

  const Clipped clipped = clipped_tokens(t, policy_);
  out.metrics["clip_ratio/low_mean"] = mean_of(clipped.low_N),
  out.metrics["clip_ratio/high_mean"] = mean_of(clipped.high_N);
  out.metrics["clip_ratio"] = mean_of(clipped.low_N.logical_or(clipped.high_N));
  if (entropy) out.metrics["entropy/mean"] = mean_of(entropy_N);
  note_changed_experts(batch, out.metrics);
  return out;
}

namespace {
const RegisterAlgorithm<Grpo> grpo("grpo");
}  // namespace

}  // namespace apus
