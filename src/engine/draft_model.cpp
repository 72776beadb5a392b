// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_model.h"

#include <algorithm>

#include "engine/rows.h"

namespace apus {

DraftModel::DraftModel(const Model& small, at::TensorOptions options, const KvCache::Spec& blocks, int64_t most_tokens)
    : small_(small),
      options_(options),
      cache_spec_(cache_spec(small.shape(), blocks.blocks, blocks.block_size)),
      most_tokens_(most_tokens),
      builder_(options.device(), blocks.block_size) {
  require(small.shape().keeps.empty(), Fault::Usage,
          "--draft_model: the layers of this model keep states, which a wrong guess would change for good; take one "
          "whose layers all attend");
}

void DraftModel::forget_others(const std::function<bool(int64_t id)>& known) {
  std::erase_if(seen_, [&](const auto& entry) { return !known(entry.first); });
}

void DraftModel::drop_cache() {
  cache_.reset();
  seen_.clear();
}

// Those that may be guessed for, with what of them is in the cache: up to the first guess that was wrong.
std::vector<Drafter::Ahead> DraftModel::start(const KvCache& /*cache*/, const std::vector<Wish>& wishes) {
  std::vector<Ahead> out;
  const ModelShape& shape = small_.shape();
  int64_t tokens = 0;
  for (size_t i = 0; i < wishes.size(); ++i) {
    const Sequence& s = *wishes[i].sequence;
    const auto known = std::ssize(s.tokens);
    if (wishes[i].count == 0 || known + wishes[i].count > shape.max_positions) continue;
    Seen& seen = seen_[s.id];
    if (seen.preemptions != s.preemptions) seen = {.preemptions = s.preemptions};
    for (int64_t n = 0; n < std::ssize(seen.tokens); ++n) {
      const int64_t at = seen.text + n;
      if (at < known && s.tokens[static_cast<size_t>(at)] == seen.tokens[static_cast<size_t>(n)]) continue;
      seen.computed = std::min(seen.computed, at);
      break;
    }
    seen.tokens.clear();
    const int64_t begin = std::min(seen.computed, known - 1);
    const auto unknown = [&](int32_t t) { return t < 0 || t >= shape.vocab; };
    if (std::any_of(s.tokens.begin() + begin, s.tokens.end(), unknown)) continue;
    // What does not fit into this pass waits, or is read a part at a time.
    const int64_t count = std::min(known - begin, most_tokens_ - tokens);
    if (count == 0) continue;
    tokens += count;
    out.push_back(ahead_of(i, wishes[i], begin));
    if (count < known - begin)
      out.back().sequence.tokens.resize(static_cast<size_t>(begin + count)), out.back().left = 0;
    seen.text = known;
  }
  return out;
}

at::Tensor DraftModel::pass(const Model& /*model*/, KvCache& /*cache*/, std::vector<Ahead>& ahead) {
  if (!cache_) cache_ = std::make_unique<KvCache>(cache_spec_, options_);
  StepPlan plan;
  std::vector<int64_t> rows;
  for (Ahead& a : ahead) {
    const int64_t count = std::ssize(a.sequence.tokens) - a.begin;
    plan.items.push_back({&a.sequence, a.begin, count, true});
    plan.tokens += count;
    rows.push_back(plan.tokens - 1);
  }
  auto [inputs, step] = builder_(plan, *cache_, {});
  const at::Tensor hidden_TD = small_.forward(inputs, step);
  for (Ahead& a : ahead) {
    Seen& seen = seen_.at(a.sequence.id);
    a.begin = seen.computed = std::ssize(a.sequence.tokens);
    if (seen.text < seen.computed) seen.tokens.assign(a.sequence.tokens.begin() + seen.text, a.sequence.tokens.end());
  }
  rows = wanted(ahead, rows);
  return rows.empty() ? at::Tensor() : small_.head(rows_of(hidden_TD, rows), Step());
}

}  // namespace apus
