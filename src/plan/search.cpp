// SPDX-License-Identifier: Apache-2.0
// --search: micro-batches, recompute and sharding tried together; those that fit, fastest first.
// The number of rows in an update stays the same.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "plan/plan.h"

namespace apus {

Plan bare_plan(PlanSpec spec) {
  Plan plan;
  plan.spec = std::move(spec);
  const PlanSpec& s = plan.spec;
  if (s.inference) {
    TuningSpec none = s.tuning;
    plan.tuning.spec = none, plan.tuning.elements = static_cast<double>(s.model.parameters());
    plan.tuning.linear = quantisable_elements(s.model);
    plan.use = infer_memory(s, plan);
  } else {
    plan.tuning = tuning_facts(s.model, s.tuning);
    plan.use =
        s.stack == "apus" ? train_memory(s.model, plan.tuning, s.train, s.device) : python_stack_memory(s, plan.tuning);
  }
  plan.capacity = s.device.memory;
  plan.fits = plan.use.peak <= plan.capacity;
  plan.speed = estimated_speed(s, plan.tuning);
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
