// SPDX-License-Identifier: Apache-2.0
// --search: micro-batches, recompute and sharding tried together; those that fit, fastest first.
// The number of rows in an update stays the same.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/plan.h"

namespace apus {

MemoryUse shared_memory(const PlanSpec& s) {
  const ModelFacts part = cut_model(s.model, s.share);
  const size_t stages = std::max<size_t>(1, s.share.stages.size());
  MemoryUse most;
  for (size_t stage = 0; stage < stages; ++stage) {
    TrainSpec train = s.train;
    train.in_parts = true, train.expert_devices = s.share.experts;
    train.devices = std::max(1, s.train.devices / static_cast<int>(s.share.copies_of()));
    train.first_stage = stage == 0, train.last_stage = stage + 1 == stages;
    train.ahead = static_cast<int64_t>(stages - stage) - 1;
    MemoryUse use =
        train_memory(part, tuning_facts(part, s.tuning, stage_of(s.share, stage, s.model.tied)), train, s.device);
    if (stages > 1) use.when += str(", of stage ", stage);
    if (use.peak > most.peak) most = std::move(use);
  }
  return most;
}

namespace {
// Of a model that answers over several devices, what each of them holds and computes. All logits are gathered.
PlanSpec part_of_device(const PlanSpec& s) {
  PlanSpec part = s;
  if (!s.share.any()) return part;
  part.model = cut_model(s.model, s.share);
  part.model.vocab = s.model.vocab;
  return part;
}
}  // namespace

Plan bare_plan(PlanSpec spec) {
  Plan plan;
  plan.spec = std::move(spec);
  const PlanSpec& s = plan.spec;
  if (s.inference) {
    const PlanSpec part = part_of_device(s);
    const auto facts_of = [&](const ModelFacts& model) {
      plan.tuning.spec = s.tuning, plan.tuning.elements = static_cast<double>(model.parameters());
      plan.tuning.linear = quantisable_elements(model, s.tuning.holds_experts);
    };
    facts_of(part.model);
    plan.use = infer_memory(part, plan);
    plan.speed = estimated_speed(part, plan.tuning);
    facts_of(s.model);
  } else {
    plan.tuning = tuning_facts(s.model, s.tuning);
    plan.use = s.share.any()       ? shared_memory(s)
               : s.stack == "apus" ? train_memory(s.model, plan.tuning, s.train, s.device)
                                   : python_stack_memory(s, plan.tuning);
  }
  plan.capacity = s.device.memory;
  plan.fits = plan.use.peak <= plan.capacity;
  if (!s.inference) plan.speed = estimated_speed(s, plan.tuning);
  return plan;
}

std::string strategy_name(int zero, int devices) {
  return devices == 1 ? "one device" : zero == 0 ? "data parallel" : str("zero", zero);
}

std::vector<Strategy> search_strategies(const PlanSpec& base) {
  std::vector<Strategy> found;
  const int64_t update = base.rows * base.train.accumulation;
  for (int zero = 0; zero <= (base.train.devices > 1 ? 3 : 0); ++zero)
    for (int64_t rows = 1; rows <= std::min<int64_t>(update, 64); rows *= 2)
      for (const RecomputeFacts& recompute :
           {RecomputeFacts{}, RecomputeFacts{.selective = true}, RecomputeFacts{.layers = base.model.layers}}) {
        PlanSpec s = base;
        s.rows = rows, s.train.accumulation = std::max<int64_t>(1, (update + rows - 1) / rows);
        s.count_tokens();
        s.train.zero = zero, s.train.recompute = recompute;
        const Plan plan = bare_plan(std::move(s));
        if (!plan.fits) continue;
        const PlanSpec& p = plan.spec;
        const bool again = recompute.selective || recompute.layers > 0;
        std::string flags = str("--per_device_train_batch_size ", rows, " --gradient_accumulation_steps ",
                                p.train.accumulation, " --gradient_checkpointing ", again ? "true" : "false",
                                recompute.selective ? " --recompute_granularity selective" : "");
        if (zero > 0) flags += str(" --deepspeed zero", zero);
        found.push_back({rows, p.train.accumulation, again, recompute.selective, zero, plan.use.peak,
                         plan.speed.tokens_per_second, plan.speed.bound, flags});
      }
  // Of equal speeds the smaller one is better.
  const auto rank = [](const Strategy& x) { return std::pair(-std::round(x.tokens_per_second), x.peak); };
  std::stable_sort(found.begin(), found.end(), [&](const Strategy& a, const Strategy& b) { return rank(a) < rank(b); });
  return found;
}

}  // namespace apus
