// SPDX-License-Identifier: Apache-2.0
// --search: micro-batches, recompute, sharding and meshes tried together; those that fit, fastest first.
// The number of rows in an update stays the same.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/nearest.h"
#include "parallel/placement/stages.h"
#include "plan/plan.h"
#include "train/options/optimizer_info.h"

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
    const int64_t pieces = s.share.pieces, kept = passes_kept(static_cast<int64_t>(stage), static_cast<int64_t>(stages),
                                                              train.accumulation, pieces);
    train.ahead = (kept + pieces - 1) / pieces - 1;
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

namespace {

PlanSpec tried(const PlanSpec& base, int64_t rows, const RecomputeFacts& recompute) {
  const int64_t update = base.rows * base.train.accumulation;
  PlanSpec s = base;
  s.rows = rows, s.train.accumulation = std::max<int64_t>(1, (update + rows - 1) / rows);
  s.train.recompute = recompute;
  s.count_tokens();
  return s;
}

// Micro-batches and recompute; nothing, where the smallest of all does not fit.
void search_rows(const PlanSpec& base, const std::string& with, std::vector<Strategy>& found) {
  const int64_t update = base.rows * base.train.accumulation;
  const RecomputeFacts all{.layers = base.model.layers};
  if (!bare_plan(tried(base, 1, all)).fits) return;
  for (int64_t rows = 1; rows <= std::min<int64_t>(update, 64); rows *= 2)
    for (const RecomputeFacts& recompute : {RecomputeFacts{}, RecomputeFacts{.selective = true}, all}) {
      const Plan plan = bare_plan(tried(base, rows, recompute));
      if (!plan.fits) continue;
      const bool again = recompute.selective || recompute.layers > 0;
      const std::string flags =
          str("--per_device_train_batch_size ", rows, " --gradient_accumulation_steps ", plan.spec.train.accumulation,
              " --gradient_checkpointing ", again ? "true" : "false",
              recompute.selective ? " --recompute_granularity selective" : "", with);
      found.push_back({rows, plan.spec.train.accumulation, again, recompute.selective, base.train.zero, plan.use.peak,
                       plan.speed.tokens_per_second, plan.speed.bound, flags});
    }
}

}  // namespace

std::vector<Strategy> search_strategies(const PlanSpec& base) {
  std::vector<Strategy> found;
  const int most = optimizer_info(base.train.optimizer.kind).whole_matrices ? 2 : 3;
  for (int zero = 0; zero <= (base.train.devices > 1 ? most : 0); ++zero) {
    PlanSpec s = base;
    s.train.zero = zero;
    search_rows(s, zero > 0 ? str(" --deepspeed zero", zero) : "", found);
  }
  return found;
}

std::vector<Strategy> search_strategies(const PlanSpec& base, const std::vector<std::string>& with) {
  std::vector<Strategy> found;
  search_rows(base, " " + join(with, " "), found);
  return found;
}

// Of equal speeds the smaller one is better.
void fastest_first(std::vector<Strategy>& found) {
  const auto rank = [](const Strategy& x) { return std::pair(-std::round(x.tokens_per_second), x.peak); };
  std::stable_sort(found.begin(), found.end(), [&](const Strategy& a, const Strategy& b) { return rank(a) < rank(b); });
}

std::vector<std::vector<std::string>> meshes_to_try(const PlanSpec& base, const std::string& optimizer) {
  const int64_t devices = base.train.devices;
  std::vector<std::vector<std::string>> out;
  for (int64_t tensor = 1; tensor <= std::min<int64_t>(devices, base.device.node); tensor *= 2)
    for (int64_t stages = 1; stages <= std::min<int64_t>(devices / tensor, 16); stages *= 2)
      for (int64_t experts = 1; experts <= (base.model.experts > 0 ? devices / (tensor * stages) : 1); experts *= 2)
        for (int zero = 0; zero <= (devices > 1 ? 3 : 0); ++zero) {
          if (tensor * stages * experts == 1 && optimizer.empty()) continue;  // tried already
          if (devices % (tensor * stages * experts) != 0) continue;
          std::vector<std::string> flags;
          const auto give = [&](const char* flag, const std::string& value) {
            flags.insert(flags.end(), {flag, value});
          };
          if (tensor > 1) give("--tensor_model_parallel_size", str(tensor)), give("--sequence_parallel", "true");
          if (stages > 1) give("--pipeline_model_parallel_size", str(stages));
          if (experts > 1) give("--expert_model_parallel_size", str(experts));
          if (zero > 0) give("--deepspeed", str("zero", zero));
          if (!optimizer.empty()) give("--optim", optimizer);
          out.push_back(std::move(flags));
        }
  return out;
}

}  // namespace apus
