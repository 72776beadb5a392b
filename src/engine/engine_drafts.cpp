// SPDX-License-Identifier: Apache-2.0
// What the engine does about guesses: who makes them, whom they are made for, and what a wrong one must not
// leave behind.
#include <algorithm>

#include "engine/draft_head.h"
#include "engine/draft_model.h"
#include "engine/draft_self.h"
#include "engine/engine.h"

namespace apus {

const GuessHead* Engine::guess_head(const Model& model) const {
  return hooks_.guess_head                       ? hooks_.guess_head.get()
         : spec_.draft.by == DraftSpec::By::Head ? model.guess_head()
                                                 : nullptr;
}

int64_t Engine::drafter_bytes(const Model& model) const {
  const GuessHead* const head = guess_head(model);
  if (!hooks_.draft && !head) return 0;
  return KvCache::bytes_per_block(cache_spec(head ? head->shape() : hooks_.draft->shape(), 0, spec_.block_size),
                                  static_cast<int64_t>(options_.dtype().itemsize()));
}

std::unique_ptr<Drafter> Engine::make_drafter() const {
  const DraftSpec& spec = spec_.draft;
  if (hooks_.draft) return std::make_unique<DraftModel>(*hooks_.draft, options_, cache_spec_, spec_.max_step_tokens);
  if (guess_head(*model_))
    return std::make_unique<DraftHead>([this](const Model& model) -> const GuessHead& { return *guess_head(model); },
                                       *model_, options_, cache_spec_);
  if (spec.by == DraftSpec::By::Self)
    return std::make_unique<DraftSelf>(*model_, spec.skipped, options_.device(), spec_.block_size);
  require(spec.by == DraftSpec::By::Text, Fault::Bug, "whoever was to guess was not loaded");
  return nullptr;
}

// Guesses at what comes next, checked in the same pass: while few answers are made, a pass costs hardly more for them.
void Engine::add_drafts(StepPlan& plan) {
  const DraftSpec& spec = spec_.draft;
  if (spec.tokens == 0) return;
  const auto generates = [](const StepPlan::Item& item) { return item.last && item.count == 1; };
  // Places of media's tokens are found from the text as it is known.
  const auto sees = [](const StepPlan::Item& item) { return !item.sequence->media.empty(); };
  const bool few = std::count_if(plan.items.begin(), plan.items.end(), generates) <= spec.max_sequences &&
                   std::none_of(plan.items.begin(), plan.items.end(), sees);
  if (!few && !(drafter_ && drafter_->looks_on())) return;
  std::vector<std::vector<int32_t>> guess = guesses(plan, few ? spec.tokens : 0);
  for (size_t i = 0; i < guess.size(); ++i) {
    if (guess[i].empty()) continue;
    const auto count = std::ssize(guess[i]);
    scheduler_->draft(plan, plan.items[i], std::move(guess[i]));
    counted_.drafted_tokens += count;
    Active& active = active_.at(plan.items[i].sequence->id);
    active.drafted += count, active.guesses.guessed(count);
  }
}

std::vector<std::vector<int32_t>> Engine::guesses(const StepPlan& plan, int64_t most) {
  std::vector<std::vector<int32_t>> out(plan.items.size());
  int64_t taken = 0;  // of the step's tokens
  const auto room = [&](const StepPlan::Item& item, int64_t wanted) {
    const int64_t count = scheduler_->room_to_draft(plan, item, wanted, taken);
    taken += count;
    return count;
  };
  const auto length = [&](const StepPlan::Item& item) {
    return most > 0 ? active_.at(item.sequence->id).guesses.next(most) : 0;
  };
  if (!drafter_) {
    for (size_t i = 0; i < out.size(); ++i) {
      if (plan.items[i].count > 1) continue;
      out[i] = look_up(plan.items[i].sequence->tokens, spec_.draft, length(plan.items[i]));
      out[i].resize(static_cast<size_t>(room(plan.items[i], std::ssize(out[i]))));
    }
    return out;
  }
  std::vector<Drafter::Wish> wishes;
  for (const auto& item : plan.items)
    wishes.push_back({item.sequence, &active_.at(item.sequence->id).request.sampling, room(item, length(item))});
  drafter_->forget_others([&](int64_t id) { return scheduler_->find(id) != nullptr; });
  out = (*drafter_)(*model_, *cache_, wishes);
  for (auto& guess : out)  // its vocabulary may be padded further
    guess.erase(std::find_if(guess.begin(), guess.end(), [&](int32_t t) { return t >= vocab_; }), guess.end());
  return out;
}

std::vector<Engine::KeptState> Engine::keep_states(const StepPlan& plan) const {
  std::vector<KeptState> kept;
  if (cache_spec_.seats == 0) return kept;
  for (const auto& item : plan.items)
    if (item.drafted > 0)
      kept.push_back({item.sequence->id, item.begin, item.begin + item.count, cache_->states(item.sequence->seat)});
  return kept;
}

// What a wrong guess has changed is as it was before the pass; the right tokens of it are read again by the next one,
// in which nothing is guessed for them.
void Engine::put_back(const std::vector<KeptState>& kept) {
  for (const KeptState& k : kept) {
    const Sequence* const s = scheduler_->find(k.id);
    if (!s || s->computed == k.end) continue;
    cache_->put_states(s->seat, k.state);
    scheduler_->rewind(k.id, k.begin);
  }
}

}  // namespace apus
