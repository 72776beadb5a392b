// SPDX-License-Identifier: Apache-2.0
#include "algos/kto.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "algos/pairs.h"
#include "device/agree.h"
#include "train/idle_pass.h"

namespace apus {

at::Tensor kto_losses(const at::Tensor& ratio_N, const at::Tensor& desirable_N, double divergence,
                      const KtoOptions& options) {
  const at::Tensor x_N = ratio_N * options.beta;
  const double shift = options.loss_type == "kto" ? divergence * options.beta : 0;
  return at::where(desirable_N > 0.5, (1 - at::sigmoid(x_N - shift)) * options.desirable_weight,
                   (1 - at::sigmoid(shift - x_N)) * options.undesirable_weight);
}

Samples mismatched(const Samples& samples) {
  Samples out;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample &asked = samples[i], &answered = samples[(i + samples.size() - 1) % samples.size()];
    const size_t prompt = answer_begin(asked), from = answer_begin(answered);
    Sample& sample = out.emplace_back();
    sample.ids.assign(asked.ids.begin(), asked.ids.begin() + static_cast<long>(prompt));
    sample.trained.assign(prompt, 0);
    for (size_t k = from; k < answered.ids.size(); ++k) {
      sample.ids.push_back(answered.ids[k]);
      sample.trained.push_back(answered.trained[k] && !sample.trained.empty());
    }
  }
  return out;
}

std::vector<Sample> Kto::encode(const Row& row, const Encoder& encoder) const {
  Samples samples = encoder.encode(row);
  for (const Sample& sample : samples) {
    const auto label = sample.columns.find("label");
    if (label == sample.columns.end())
      throw RowError(row.origin, "label", "kto needs a label: true for a good answer, false for a bad one");
    if (label->second != 0 && label->second != 1)
      throw RowError(row.origin, "label", str("is ", label->second, "; kto's labels are true and false"));
    if (sample.trained_tokens() == 0) throw RowError(row.origin, "messages", "the answer has no token that counts");
  }
  return samples;
}

// The mean over all rows of the update, on all ranks; 0 where no row has a neighbour.
double Kto::divergence(Actors& actors, const std::vector<Samples>& micro_batches) const {
  if (o_.loss_type != "kto") return 0;
  Samples all;
  for (const Samples& samples : micro_batches) all.insert(all.end(), samples.begin(), samples.end());
  const bool in_step = passes_in_step(actors.policy), compares = all.size() > 1, trains = at::GradMode::is_enabled();
  size_t passes = compares || in_step ? micro_batches.size() : 0;
  if (in_step && trains) passes = static_cast<size_t>(largest_of(*actors.data_ranks, static_cast<double>(passes)));
  const Samples others = mismatched(all);
  auto next = others.begin();
  double sum = 0, count = 0;
  for (size_t i = 0; i < passes; ++i) {
    const bool counts = compares && i < micro_batches.size();
    const auto end = next + (counts ? std::ssize(micro_batches[i]) : 0);
    const Batch batch = (counts ? collate({next, end}) : idle_batch()).to(actors.policy.head_weight().device());
    next = end;
    const at::Tensor apart_T = Reference::of(actors.policy).logprobs(batch) - actors.reference->logprobs(batch);
    if (counts) sum += apart_T.sum().item<double>(), count += static_cast<double>(micro_batches[i].size());
  }
  if (trains) {
    const double rows = actors.summed(static_cast<double>(all.size()));
    require(rows > 1, Fault::Usage,
            "kto compares each row with others of its update, and this one has a single row: raise "
            "--per_device_train_batch_size or --gradient_accumulation_steps");
    sum = actors.summed(sum), count = actors.summed(count);
  }
  return count > 0 ? std::max(0.0, sum / count) : 0;
}

std::vector<Update> Kto::collect(Actors& actors, std::vector<Samples> micro_batches) {
  require(actors.reference.has_value(), Fault::Bug, "kto is given no reference");
  const double divergence_now = divergence(actors, micro_batches);
  Update update;
  for (const Samples& samples : micro_batches) {
    Batch& batch = update.emplace_back(collate(samples));
    batch.sequence_columns["kl"] = at::full({std::ssize(samples)}, divergence_now, at::kFloat);
  }
  return {std::move(update)};
}

Loss Kto::loss(Actors& actors, Batch& batch, const Forward& forward) {
  const at::Tensor reference_N = sequence_sums(actors.reference->logprobs(batch), batch.step);
  const at::Tensor logprob_N = sequence_sums(policy_logprobs(actors, batch, forward), batch.step);
  const auto kl = batch.sequence_columns.find("kl");  // a batch that is not collected is only run through
  const at::Tensor good_N = batch.sequence_columns.at("label"),
                   kl_N = kl == batch.sequence_columns.end() ? at::zeros_like(good_N) : kl->second;
  const at::Tensor ratio_N = logprob_N - reference_N;
  Loss out{.sum = kto_losses(ratio_N, good_N, kl_N[0].item<double>(), o_).sum(), .metrics = {}};
  const at::Tensor reward_N = ratio_N.detach() * o_.beta, bad_N = 1 - good_N;
  const auto among = [](const at::Tensor& x_N, const at::Tensor& which_N) {
    return Ratio{(x_N.detach() * which_N).sum(), which_N.sum()};
  };
  out.metrics["rewards/chosen"] = among(reward_N, good_N), out.metrics["rewards/rejected"] = among(reward_N, bad_N);
  out.metrics["logps/chosen"] = among(logprob_N, good_N), out.metrics["logps/rejected"] = among(logprob_N, bad_N);
  if (o_.loss_type == "kto") out.metrics["kl"] = mean_of(kl_N);
  return out;
}

namespace {
const RegisterAlgorithm<Kto> kto("kto");
}  // namespace

}  // namespace apus
