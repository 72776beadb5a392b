// SPDX-License-Identifier: Apache-2.0
#include "algos/ppo.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

#include "algos/policy/kl.h"
#include "algos/replay.h"
#include "algos/row_sharers.h"
#include "base/random.h"
#include "ops/ops.h"
#include "train/idle_pass.h"
#include "train/label_logprobs.h"

namespace apus {
namespace {

// Columns of the tokens, each at the place whose label is the token that it is about.
constexpr const char* kOldLogprob = "old_logprob";
constexpr const char* kOldValue = "old_value";
constexpr const char* kGain = "advantage";
constexpr const char* kReturn = "return";

// Observations are left out from the beginning: numbers are of the policy's tokens, one behind the other, so that a
// token looks at the next of its own.
std::vector<std::vector<uint8_t>> own_tokens(const std::vector<Answer>& answers) {
  std::vector<std::vector<uint8_t>> out;
  for (const Answer& answer : answers) out.emplace_back(static_cast<size_t>(answer.said()), 1);
  return out;
}

std::vector<float> floats(const std::vector<double>& x) { return {x.begin(), x.end()}; }

// Empty of a batch that was not collected: with it a rank without answers only makes the passes of others.
at::Tensor column_at(const Batch& batch, const char* name, const at::Tensor& index_N) {
  const auto column = batch.token_columns.find(name);
  return column == batch.token_columns.end() ? at::empty({0}, at::kFloat) : column->second.index_select(0, index_N);
}

// Of each answer of a batch, what all its tokens met.
void cut_apart(const at::Tensor& met_TW, const Batch& batch, std::vector<std::vector<int16_t>>& out) {
  const int16_t* met = met_TW.data_ptr<int16_t>();
  for (const int32_t length : batch.step.length_q) {
    const int16_t* const end = met + length * met_TW.size(1);
    out.emplace_back(met, end);
    met = end;
  }
}

// Of each answer of a batch, the numbers at its labels.
void cut_apart(const at::Tensor& x_T, const Batch& batch, std::vector<std::vector<double>>& out) {
  const at::Tensor here_T = x_T.to(at::kCPU, at::kFloat).contiguous(), label_T = batch.label_T.to(at::kCPU);
  const float* x = here_T.data_ptr<float>();
  const int64_t* label = label_T.data_ptr<int64_t>();
  for (const int32_t length : batch.step.length_q) {
    std::vector<double>& values = out.emplace_back();
    for (int32_t i = 0; i < length; ++i, ++x, ++label)
      if (*label >= 0) values.push_back(*x);
  }
}

}  // namespace

at::Tensor value_losses(const at::Tensor& value_N, const at::Tensor& old_N, const at::Tensor& return_N, double clip) {
  const at::Tensor bounded_N = old_N + (value_N - old_N).clamp(-clip, clip);
  return at::maximum((value_N - return_N).square(), (bounded_N - return_N).square()) * 0.5;
}

Ppo::Ppo(PpoOptions options) : o_(std::move(options)), kl_coef_(o_.kl_coef, o_.kl_target, o_.kl_horizon), replay_(o_) {
  policy_.epsilon = policy_.epsilon_high = o_.cliprange;
}

void Ppo::begin(const RunSetting& setting) {
  rank_ = setting.rank, ranks_ = setting.ranks, seed_ = setting.seed, device_ = setting.device;
  temperature_ = setting.sampling.temperature, tokenizer_ = setting.tokenizer, output_dir_ = setting.output_dir;
  micro_batch_ = setting.loop.per_device_train_batch_size;
  if (o_.brings_rows()) {
    replayed_ = read_rollouts(*o_.replay_rollouts, 1);
    replayed_batches_ = most_replayed_batches(replayed_, micro_batch_, ranks_);
    return;
  }
  questions_ = micro_batch_ * setting.loop.accumulation(ranks_);
  rounds_ = std::make_unique<AnswerRounds>(RoundOptions{.rewards = o_,
                                                        .environment = o_,
                                                        .servers = o_,
                                                        .scored_at_once = o_.local_rollout_forward_batch_size,
                                                        .texts_alone = texts_alone(o_, o_.dump_rollouts.has_value())},
                                           setting);
}

std::unique_ptr<SampleSource> Ppo::own_rows() {
  return std::make_unique<ReplayedAnswers>(replayed_, micro_batch_, rank_, ranks_);
}

std::vector<Sample> Ppo::encode(const Row& row, const Encoder& encoder) const {
  return {rounds_ ? rounds_->question(row, encoder) : encoder.encode_prompt(row)};
}

std::optional<int64_t> Ppo::batches_per_collection() const {
  return std::max<int64_t>(1, o_.brings_rows() ? replayed_batches_ : questions_);
}

void Ppo::restore(const Json& state) {
  if (state.contains("kl_coef")) kl_coef_.restore(state["kl_coef"].get<double>());
}

std::vector<Update> Ppo::collect(Actors& actors, std::vector<Samples> micro_batches) {
  const bool training = at::GradMode::is_enabled();
  replay_.begin(actors);
  AnswerRounds::Round round = answers_to(std::move(micro_batches), replayed_, rounds_.get(), actors, training);
  const RowSharers sharers(actors.sharers);
  const RankSum over_ranks = [&](double x) { return training ? actors.summed(x) / sharers.count() : x; };
  warms_up_ = training && actors.step / o_.updates() < o_.critic_warmup_rounds;
  const std::vector<Answer> conversations = conversations_of(round.answers).each;
  const Traces traces = traced(actors, conversations);
  const Samples samples = judged(conversations, traces, over_ranks);
  note(round, traces, over_ranks);
  if (!o_.brings_rows()) note_mismatch(conversations, traces);
  if (training) keep(round.answers, actors, sharers.first());
  return divided(samples, static_cast<uint64_t>(actors.step), training);
}

// The policy, the reference and the critic as they stand, on all answers, without gradients.
Ppo::Traces Ppo::traced(Actors& actors, const std::vector<Answer>& answers) const {
  const at::NoGradGuard no_grad;
  require(o_.kl_coef == 0 || actors.reference, Fault::Usage, "--kl_coef ", o_.kl_coef,
          " holds the policy to a reference, and there is none: give --ref_model, or --kl_coef 0");
  Traces out;
  const auto at_once = static_cast<size_t>(o_.local_rollout_forward_batch_size);
  const size_t passes = passes_in_step(actors.policy, (answers.size() + at_once - 1) / at_once, actors.data_ranks);
  for (size_t pass = 0, begin = 0; pass < passes; ++pass, begin += at_once) {
    Samples samples;
    for (size_t i = begin; i < std::min(answers.size(), begin + at_once); ++i) {
      samples.push_back(sample_of(answers[i], true, false));
      replay_.add_experts(samples.back(), answers[i]);
    }
    const bool idle = samples.empty();
    const Batch batch = (idle ? idle_batch() : collate(samples)).to(device_);
    const Batch read = replay_.before_updates(batch);
    const ops::HeadLogprob now = label_head(actors.policy, Reference::of(actors.policy).head_factors(read),
                                            batch.label_T, batch.step, temperature_, true);
    const at::Tensor value_T = Scorer(*actors.others.at("critic").at(0)).token_scores(batch);
    const at::Tensor reference_T = o_.kl_coef > 0 ? actors.reference->logprobs(batch, temperature_) : at::Tensor();
    if (idle) continue;
    if (replay_.of_policy()) cut_apart(ExpertReplay::written_TW(read), batch, out.experts);
    out.entropy += now.entropy_T.sum().item<double>();
    cut_apart(now.logprob_T, batch, out.old);
    cut_apart(value_T, batch, out.values);
    if (o_.kl_coef > 0)
      cut_apart(kl_of_tokens(now.logprob_T, reference_T, kl_estimate_named(o_.kl_estimator)), batch, out.divergences);
  }
  if (!o_.brings_rows() || answers.empty() || answers[0].engine_logprobs.empty()) return out;
  for (size_t i = 0; i < answers.size(); ++i) {
    out.old[i].clear();
    for (size_t t = 0; t < answers[i].ids.size(); ++t)
      if (answers[i].says(t)) out.old[i].push_back(answers[i].engine_logprobs[t]);
  }
  return out;
}

double Ppo::shown_reward(const Answer& answer) const {
  return answer.reward - (answer.cut ? o_.missing_eos_penalty.value_or(0) : 0);
}

// The answers as samples, with what they turned out to be worth at each token.
Samples Ppo::judged(const std::vector<Answer>& answers, const Traces& traces, const RankSum& over_ranks) const {
  const auto own = own_tokens(answers);
  std::vector<std::vector<double>> rewards, advantages, returns;
  for (size_t i = 0; i < answers.size(); ++i) {
    std::vector<double>& reward = rewards.emplace_back(own[i].size(), 0.0);
    for (size_t t = 0; t < reward.size() && o_.kl_coef > 0; ++t)
      reward[t] = -kl_coef_.value() * traces.divergences[i][t];
    double later = 0;  // what the environment gave turns before the last one stands at their ends
    size_t said = 0;
    for (size_t k = 0, begin = 0; k + 1 < answers[i].turns.size(); begin = answers[i].turns[k++].end) {
      for (size_t t = begin; t < answers[i].turns[k].end; ++t) said += answers[i].says(t);
      reward[said - 1] += answers[i].turns[k].reward, later += answers[i].turns[k].reward;
    }
    reward.back() += shown_reward(answers[i]) - later;
  }
  if (o_.whiten_rewards) whiten(rewards, own, false, over_ranks);
  for (size_t i = 0; i < answers.size(); ++i) {
    Gains gains = gains_of(rewards[i], traces.values[i], own[i], o_.gamma, o_.lam);
    advantages.push_back(std::move(gains.advantages)), returns.push_back(std::move(gains.returns));
  }
  whiten(advantages, own, true, over_ranks);
  Samples out;
  for (size_t i = 0; i < answers.size(); ++i) {
    Sample& sample = out.emplace_back(sample_of(answers[i], true, false));
    replay_.add_experts(sample, answers[i]);
    if (replay_.of_policy()) sample.experts = traces.experts[i];
    sample.token_columns[kOldLogprob] = answer_column(answers[i], floats(traces.old[i]));
    sample.token_columns[kOldValue] = answer_column(answers[i], floats(traces.values[i]));
    sample.token_columns[kGain] = answer_column(answers[i], floats(advantages[i]));
    sample.token_columns[kReturn] = answer_column(answers[i], floats(returns[i]));
  }
  return out;
}

// Each pass sees the answers in an order of its own.
std::vector<Update> Ppo::divided(const Samples& samples, uint64_t step, bool training) const {
  const size_t passes = training ? static_cast<size_t>(o_.passes()) : 1;
  const size_t parts = training ? static_cast<size_t>(o_.num_mini_batches) : 1;
  std::vector<Update> updates;
  for (size_t pass = 0; pass < passes; ++pass) {
    std::vector<size_t> order(samples.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (parts > 1) Random(seed_, stream_named("minibatches"), (step + pass) << 32).shuffle(std::span(order));
    for (size_t part = 0; part < parts; ++part) {
      Update& update = updates.emplace_back();
      const size_t end = order.size() * (part + 1) / parts;
      for (size_t k = order.size() * part / parts; k < end; k += static_cast<size_t>(micro_batch_)) {
        Samples of_batch;
        for (size_t j = k; j < std::min(end, k + static_cast<size_t>(micro_batch_)); ++j)
          of_batch.push_back(samples[order[j]]);
        update.push_back(collate(of_batch));
      }
    }
  }
  return updates;
}

PolicyTokens Ppo::tokens_of(const Batch& batch, const at::Tensor& logprob_T, const at::Tensor& index_N) const {
  const std::vector<int64_t> lengths(batch.step.length_q.begin(), batch.step.length_q.end());
  PolicyTokens t;
  t.sequences = static_cast<int64_t>(lengths.size());
  t.sequence_N = at::repeat_interleave(at::tensor(lengths, at::kLong)).to(index_N.device()).index_select(0, index_N);
  t.logprob_N = logprob_T.index_select(0, index_N);
  t.old_N = column_at(batch, kOldLogprob, index_N);
  t.advantage_N = column_at(batch, kGain, index_N);
  return t;
}

at::Tensor Ppo::policy_loss(Actors& actors, Batch& batch, const Forward& forward, const at::Tensor& index_N,
                            Loss& out) {
  tell_experts(batch);
  const at::Tensor hidden_TD = forward.hidden(actors.policy, batch);
  const ops::HeadLogprob head = label_head(actors.policy, actors.policy.head_factors(hidden_TD, batch.step),
                                           batch.label_T, batch.step, temperature_, o_.entropy_coef > 0);
  const PolicyTokens t = tokens_of(batch, head.logprob_T, index_N);
  const at::Tensor count = at::tensor(static_cast<double>(batch.trained), at::kFloat);
  at::Tensor loss_N = policy_loss_named("dapo").token_loss(t, policy_);
  out.metrics["loss/policy_avg"] = {loss_N.detach().sum(), count};
  if (o_.entropy_coef > 0) loss_N = loss_N - o_.entropy_coef * head.entropy_T.index_select(0, index_N);
  const at::Tensor moved_N = t.log_ratio().detach();
  const Clipped clipped = clipped_tokens(t, policy_);
  const at::Tensor clipped_share = clipped.low_N.logical_or(clipped.high_N).sum();
  out.metrics["policy/clipfrac_avg"] = {clipped_share, count};
  out.metrics["clip_ratio"] = {clipped_share, count};
  out.metrics["policy/approxkl_avg"] = {moved_N.square().mul(0.5).sum(), count};
  out.metrics["val/ratio"] = {moved_N.exp().sum(), count};
  note_changed_experts(batch, out.metrics);
  return loss_N.sum();
}

at::Tensor Ppo::critic_loss(Actors& actors, const Batch& batch, const Forward& forward, const at::Tensor& index_N,
                            Loss& out) {
  const Model& critic = *actors.others.at("critic").at(0);
  read_by_critic_ = batch;  // layers that run again in the backward pass look at its step
  read_by_critic_.step.turns.clear();
  const at::Tensor hidden_TD = forward.hidden(critic, read_by_critic_);
  const at::Tensor value_N = token_scores(critic, hidden_TD, read_by_critic_.step).index_select(0, index_N);
  const at::Tensor old_N = column_at(batch, kOldValue, index_N);
  const at::Tensor return_N = column_at(batch, kReturn, index_N);
  const at::Tensor loss_N = value_losses(value_N, old_N, return_N, o_.cliprange_value);
  const at::Tensor count = at::tensor(static_cast<double>(batch.trained), at::kFloat);
  out.metrics["loss/value_avg"] = {loss_N.detach().sum(), count};
  out.metrics["val/clipfrac_avg"] = {(value_N.detach() - old_N).abs().gt(o_.cliprange_value).sum(), count};
  out.metrics["val/mean"] = {value_N.detach().sum(), count};
  return (loss_N * o_.vf_coef).sum();
}

Loss Ppo::loss(Actors& actors, Batch& batch, const Forward& forward) {
  Loss out{.sum = {}, .metrics = std::exchange(noted_, {})};
  const bool collected = batch.token_columns.count(kGain) > 0;
  const at::Tensor index_N = collected ? ops::labelled_rows(batch.label_T) : at::empty({0}, batch.label_T.options());
  out.sum = critic_loss(actors, batch, forward, index_N, out);
  // The policy is left out of a warm-up altogether: without gradients it is not even decayed.
  if (!warms_up_) out.sum = out.sum + policy_loss(actors, batch, forward, index_N, out);
  return out;
}

namespace {
const RegisterAlgorithm<Ppo> ppo("ppo");
}  // namespace

}  // namespace apus
