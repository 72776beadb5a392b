// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_head.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "engine/rows.h"
#include "models/layer_runner.h"

namespace apus {

namespace {
// What some layers give, in this order.
struct Looking final : RunnerAround {
  explicit Looking(std::vector<int64_t> behind) : behind(std::move(behind)), seen(this->behind.size()) {}
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    at::Tensor y_TD = RunnerAround::layer(model, i, x_TD, s);
    for (size_t n = 0; n < behind.size(); ++n)
      if (behind[n] == i) seen[n] = y_TD.to(s.slot.device());
    return y_TD;
  }
  const std::vector<int64_t> behind;
  std::vector<at::Tensor> seen;
};
}  // namespace

DraftHead::DraftHead(HeadOf head_of, const Model& model, at::TensorOptions options, const KvCache::Spec& blocks)
    : head_of_(std::move(head_of)),
      options_(options),
      cache_spec_(cache_spec(head_of_(model).shape(), blocks.blocks, blocks.block_size)),
      builder_(options.device(), blocks.block_size) {}

void DraftHead::forget_others(const std::function<bool(int64_t id)>& known) {
  std::erase_if(seen_, [&](const auto& entry) { return !known(entry.first); });
}

void DraftHead::drop_cache() {
  cache_.reset();
  seen_.clear();
}

at::Tensor DraftHead::run(const Model& model, const StepPlan& plan, const Inputs& in, Step& s) {
  const GuessHead& head = head_of_(model);
  Looking looking(head.layers_seen());
  const at::Tensor hidden_TD = model.forward(in, s, looking);
  const at::Tensor seen_TA = looking.seen.empty() ? hidden_TD : at::cat(looking.seen, 1),
                   state_TD = head.begin(seen_TA.to(options_.device()));
  int64_t row = 0;
  for (const auto& item : plan.items) {
    const Sequence& of = *item.sequence;
    Seen& seen = seen_[of.id];
    if (seen.preemptions != of.preemptions) seen = {.preemptions = of.preemptions};
    seen.begin = item.begin, seen.state_TD = state_TD.narrow(0, row, item.count);
    row += item.count;
  }
  return hidden_TD;
}

// Everybody who has states that were not read yet, and of these those whose next token is known by now.
std::vector<Drafter::Ahead> DraftHead::start(const KvCache& /*cache*/, const std::vector<Wish>& wishes) {
  std::vector<Ahead> out;
  for (size_t i = 0; i < wishes.size(); ++i) {
    const Sequence& s = *wishes[i].sequence;
    const auto found = seen_.find(s.id);
    if (found == seen_.end() || found->second.preemptions != s.preemptions || !s.media.empty()) continue;
    Seen& seen = found->second;
    const int64_t known = std::ssize(s.tokens), end = std::min(known - 1, seen.begin + seen.state_TD.size(0));
    const int64_t begin = std::max(seen.begin, seen.read);
    if (begin >= end) continue;
    out.push_back(ahead_of(i, wishes[i], begin));
    out.back().state_TD = seen.state_TD.narrow(0, begin - seen.begin, end - begin);
    if (end < known - 1) out.back().left = 0;
    seen.read = end;
  }
  return out;
}

at::Tensor DraftHead::pass(const Model& model, KvCache& /*cache*/, std::vector<Ahead>& ahead) {
  if (!cache_) cache_ = std::make_unique<KvCache>(cache_spec_, options_);
  const GuessHead& head = head_of_(model);
  StepPlan plan;
  std::vector<int64_t> rows;
  std::vector<at::Tensor> before;
  for (const Ahead& a : ahead) {
    before.push_back(a.state_TD);
    plan.items.push_back({&a.sequence, a.begin, a.state_TD.size(0), true});
    plan.tokens += a.state_TD.size(0);
    rows.push_back(plan.tokens - 1);
  }
  StepNumbers numbers = builder_.read(plan, /*seats=*/false, {});
  auto id = numbers.id.begin();
  for (const auto& item : plan.items) id = std::copy_n(item.sequence->tokens.begin() + item.begin + 1, item.count, id);
  auto [next, step] = builder_.build(numbers, *cache_);
  const at::Tensor state_TD = head.states(model, next, at::cat(before, 0), step);
  for (size_t i = 0; i < ahead.size(); ++i) {
    ahead[i].begin += ahead[i].state_TD.size(0);
    ahead[i].state_TD = state_TD.narrow(0, rows[i], 1);
  }
  rows = wanted(ahead, rows);
  return rows.empty() ? at::Tensor() : head.logits(model, rows_of(state_TD, rows));
}

}  // namespace apus
