// SPDX-License-Identifier: Apache-2.0
// What would make a run fit, in the order of what it costs:
// time first, then numbers, then what is learnt, then machines.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "plan/plan.h"
#include "train/options/optimizer_info.h"

namespace apus {
namespace {

struct Knob {
  Change change;
  std::function<void(PlanSpec&)> turn;
};

void training_knobs(const PlanSpec& s, std::vector<Knob>& knobs) {
  if (!s.train.recompute.whole(s.model.layers))
    knobs.push_back({{s.train.recompute.selective ? "--recompute_granularity full" : "--gradient_checkpointing true",
                      "recompute layers in the backward pass: about a third more time"},
                     [](PlanSpec& p) { p.train.recompute = {.layers = p.model.layers}, p.train.towers_again = true; }});
  for (int64_t rows = s.rows / 2; rows >= 1; rows /= 2) {
    const int64_t accumulation = s.train.accumulation * ((s.rows + rows - 1) / rows);
    knobs.push_back(
        {{str("--per_device_train_batch_size ", rows, " --gradient_accumulation_steps ", accumulation),
          "smaller micro-batches, more of them: the same update"},
         [rows, accumulation](PlanSpec& p) { p.rows = rows, p.train.accumulation = accumulation, p.count_tokens(); }});
  }
  for (int64_t tokens = s.row_tokens / 2; tokens >= 1024; tokens /= 2)
    knobs.push_back({{str(s.packed ? "--packing_length " : "--max_length ", tokens),
                      s.packed ? "shorter packs" : "shorter rows: longer ones are cut or left out"},
                     [tokens](PlanSpec& p) { p.row_tokens = tokens, p.count_tokens(); }});
  for (int64_t answers = s.train.answers / 2; answers >= 8; answers /= 2)
    knobs.push_back({{str("--vllm_max_num_seqs ", answers), "fewer answers drawn at once: rounds take longer"},
                     [answers](PlanSpec& p) {
                       p.train.cache_bytes *= static_cast<double>(answers) / static_cast<double>(p.train.answers);
                       p.train.answers = answers;
                     }});
  if (s.element() > 2)
    knobs.push_back({{"--torch_dtype bfloat16", "weights and activations in two bytes"},
                     [](PlanSpec& p) { p.train.element = 2, p.train.optimizer.master = p.master_by_choice; }});
  const bool by_rows = !optimizer_info(s.train.optimizer.kind).whole_matrices;
  if (s.train.devices > 1)
    for (int zero = std::max(1, s.train.zero + 1); zero <= (by_rows ? 3 : 2); ++zero)
      knobs.push_back(
          {{str("--deepspeed zero", zero), zero == 1   ? "share the optimizer's state"
                                           : zero == 2 ? "share gradients and the optimizer's state"
                                                       : "share weights, gradients and the optimizer's state"},
           [zero](PlanSpec& p) { p.train.zero = zero; }});
  if (!s.tuning.lora) {
    knobs.push_back({{"--optim adamw_8bit", "the optimizer's moments in one byte each"},
                     [](PlanSpec& p) { p.train.optimizer.kind = "adamw_8bit"; }});
    if (s.train.optimizer.master)
      knobs.push_back({{"--master_weights stochastic", "no float32 copy of the weights, stochastic rounding instead"},
                       [](PlanSpec& p) { p.train.optimizer.master = p.master_by_choice = false; }});
  }
  if (!s.tuning.lora && s.train.devices == 1 && s.train.accumulation == 1)
    knobs.push_back({{"--update_in_backward true --max_grad_norm 0",
                      "each weight is updated in the backward pass: no gradients kept, and none clipped"},
                     [](PlanSpec& p) { p.train.update_in_backward = true; }});
  for (int more = 2; more <= 64; more *= 2)
    if (more > s.train.devices && more <= 8 * s.train.devices)
      knobs.push_back({{str("--devices ", more, " --deepspeed zero3"), "more devices, everything shared"},
                       [more](PlanSpec& p) { p.train.devices = more, p.train.zero = 3; }});
  if (!s.tuning.lora)
    knobs.push_back({{"--tuner_type lora", "train low-rank factors beside frozen weights"},
                     [](PlanSpec& p) { p.tuning = TuningSpec{}, p.train.frozen_copies = 0; }});
}

void inference_knobs(const PlanSpec& s, std::vector<Knob>& knobs) {
  if (s.element() > 2)
    knobs.push_back(
        {{"--torch_dtype bfloat16", "weights and cache in two bytes"}, [](PlanSpec& p) { p.train.element = 2; }});
  for (int64_t context = s.infer.context / 2; context >= 1024; context /= 2)
    knobs.push_back({{str("--max_model_len ", context), "a shorter context"},
                     [context](PlanSpec& p) { p.infer.context = context; }});
  for (int64_t tokens = s.infer.step_tokens / 2; tokens >= 256; tokens /= 2)
    knobs.push_back({{str("--max_batched_tokens ", tokens), "smaller steps"},
                     [tokens](PlanSpec& p) { p.infer.step_tokens = tokens; }});
  for (int more = 2; more <= s.device.node; more *= 2)
    if (more > s.train.devices)
      knobs.push_back({{"--device_map auto", str("the layers on ", more,
                                                 " such devices, one run of them after the "
                                                 "other: the memory of all, the speed of one")},
                       [more](PlanSpec& p) { p.train.devices = more; }});
}

bool overlap(const Change& a, const Change& b) {  // both turn the same flag
  return a.flags.substr(0, a.flags.find(' ')) == b.flags.substr(0, b.flags.find(' ')) ||
         (a.flags.find("--deepspeed") != std::string::npos && b.flags.find("--deepspeed") != std::string::npos);
}

using Chosen = std::vector<const Knob*>;

Plan turned(const PlanSpec& base, const Chosen& knobs) {
  PlanSpec spec = base;
  for (const Knob* knob : knobs) knob->turn(spec);
  return bare_plan(std::move(spec));
}

// Turns one knob after the other until it fits, a later one of the same flag in place of an earlier one; then leaves
// out what was turned for nothing.
Chosen cheapest(const PlanSpec& spec, const std::vector<Knob>& knobs) {
  for (const Knob& knob : knobs)
    if (knob.change.flags != "--tuner_type lora" && knob.change.flags.rfind("--devices", 0) != 0 &&
        turned(spec, {&knob}).fits)
      return {&knob};
  Chosen chosen;
  bool fits = false;
  for (size_t i = 0; i < knobs.size() && !fits; ++i) {
    std::erase_if(chosen, [&](const Knob* k) { return overlap(k->change, knobs[i].change); });
    chosen.push_back(&knobs[i]);
    fits = turned(spec, chosen).fits;
  }
  if (!fits) return {};
  for (size_t i = chosen.size(); i-- > 0;) {
    Chosen fewer = chosen;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (turned(spec, fewer).fits) chosen.swap(fewer);
  }
  return chosen;
}

}  // namespace

Plan make_plan(PlanSpec spec) {
  Plan plan = bare_plan(std::move(spec));
  if (plan.fits || plan.spec.stack != "apus") return plan;
  std::vector<Knob> knobs;
  plan.spec.inference ? inference_knobs(plan.spec, knobs) : training_knobs(plan.spec, knobs);
  const Chosen chosen = cheapest(plan.spec, knobs);
  for (const Knob* knob : chosen) plan.changes.push_back(knob->change);
  if (!chosen.empty()) plan.changed_peak = turned(plan.spec, chosen).use.peak;
  return plan;
}

}  // namespace apus
