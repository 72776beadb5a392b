// SPDX-License-Identifier: Apache-2.0
// One step behind the device: where nobody but the model decides about the next token, the device is asked for a step
// before the host knows the tokens of the one before it, and never waits for the host. Whatever the host does for a
// token (is it the last, its text, its receiver) is done while the device computes the next one. For an answer that has
// ended by then, that one is thrown away.
#include <algorithm>

#include "engine/engine.h"

namespace apus {

// Then so may the steps behind it, of the same sequences.
bool Engine::may_fly(const StepPlan& plan) const {
  if (!runs_ahead_ || hooks_.line || model_->devices() || drafter_ || spec_.draft.tokens > 0 || !experts_met_.empty() ||
      cache_spec_.seats > 0)
    return false;
  return std::all_of(plan.items.begin(), plan.items.end(), [&](const StepPlan::Item& item) {
    return gives_one_token(item) && is_plain_draw(sample_row(item.sequence->id));
  });
}

Engine::Flight Engine::launch(const StepPlan& plan, const at::Tensor& id_S) {
  const std::vector<std::string> adapter = adapters_of(plan);
  at::Tensor logits_SV = recorded_logits(plan, adapter, id_S);
  if (!logits_SV.defined()) {
    auto [inputs, step] = builder_(plan, *cache_, adapter);
    if (id_S.defined()) inputs.id_T = id_S;
    logits_SV = model_->head(model_->forward(inputs, step), builder_.select(step, adapter));
  }
  std::vector<SampleRow> rows;
  std::vector<int64_t> all;
  for (const auto& item : plan.items) {
    const Sequence& s = *item.sequence;
    all.push_back(std::ssize(rows));
    rows.push_back(sample_row(s.id, item.begin + item.count - std::ssize(s.tokens)));
  }
  return {plan.ids(), DrawnTokens(logits_SV, rows, all)};
}

// Blocks of answers that are over may be in use by the step under way, and somebody else's already: the device does one
// after the other.
void Engine::fly_on() {
  Flight before = *std::exchange(flight_, std::nullopt);
  StepPlan plan = scheduler_->ahead();
  if (plan.items.empty()) return land(std::move(before));
  ++counted_.steps;
  const std::vector<int64_t> ids = plan.ids();
  try {
    std::vector<int64_t> rows;
    for (const int64_t id : ids)
      rows.push_back(std::find(before.ids.begin(), before.ids.end(), id) - before.ids.begin());
    flight_ = launch(plan, before.drawn.ids(rows));
  } catch (const std::exception& error) {
    land(std::move(before));
    return fail_step(ids, error);
  }
  land(std::move(before));
  StepPlan left;
  for (size_t i = 0; i < ids.size(); ++i)
    if (scheduler_->find(ids[i])) left.items.push_back(plan.items[i]);
  scheduler_->advance(left);
  if (left.items.empty()) flight_.reset();
}

void Engine::land(Flight flight) {
  try {
    std::vector<TokenOut> tokens = flight.drawn.tell();
    for (size_t i = 0; i < tokens.size(); ++i)
      if (const Sequence* const s = scheduler_->find(flight.ids[i])) accept(*s, std::move(tokens[i]), "");
  } catch (const std::exception& error) {
    fail_step(flight.ids, error);
  }
}

void Engine::land() {
  if (flight_) land(*std::exchange(flight_, std::nullopt));
}

}  // namespace apus
