// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_model.h"

#include <algorithm>

#include "engine/rows.h"

namespace apus {

DraftModel::DraftModel(const Model& model, at::TensorOptions options, const KvCache::Spec& blocks, int64_t most_tokens)
    : model_(model),
      options_(options),
      cache_spec_(cache_spec(model.shape(), blocks.blocks, blocks.block_size)),
      most_tokens_(most_tokens),
      builder_(options.device(), blocks.block_size) {
  require(model.shape().keeps.empty(), Fault::Usage,
          "--draft_model: the layers of this model keep states, which a wrong guess would change for good; take one "
          "whose layers all attend");
}

// A sequence with the guesses behind it, as far as they have come.
struct DraftModel::Ahead {
  size_t wish;
  Sequence sequence;
  Sampling sampling;
  int64_t begin, left;  // the first token that is to be read; guesses still wanted
};

void DraftModel::forget_others(const std::function<bool(int64_t id)>& known) {
  std::erase_if(seen_, [&](const auto& entry) { return !known(entry.first); });
}

void DraftModel::drop_cache() {
  cache_.reset();
  seen_.clear();
}

// Those that may be guessed for, with what of them is in the cache: up to the first guess that was wrong.
std::vector<DraftModel::Ahead> DraftModel::start(const std::vector<Wish>& wishes) {
  std::vector<Ahead> out;
  const ModelShape& shape = model_.shape();
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
    out.push_back({i, s, *wishes[i].sampling, begin, wishes[i].count});
    out.back().sequence.draft.clear();
    out.back().sampling.top_logprobs = -1;
    if (count < known - begin)
      out.back().sequence.tokens.resize(static_cast<size_t>(begin + count)), out.back().left = 0;
    seen.computed = begin + count, seen.text = known;
  }
  return out;
}

std::vector<std::vector<int32_t>> DraftModel::operator()(const std::vector<Wish>& wishes) {
  std::vector<std::vector<int32_t>> out(wishes.size());
  std::vector<Ahead> ahead = start(wishes);
  if (!ahead.empty() && !cache_) cache_ = std::make_unique<KvCache>(cache_spec_, options_);
  while (!ahead.empty()) {
    StepPlan plan;
    std::vector<int64_t> rows;
    for (const Ahead& a : ahead) {
      const int64_t count = std::ssize(a.sequence.tokens) - a.begin;
      plan.items.push_back({&a.sequence, a.begin, count, true});
      plan.tokens += count;
      rows.push_back(plan.tokens - 1);
    }
    auto [inputs, step] = builder_(plan, *cache_, {});
    const at::Tensor hidden_TD = model_.forward(inputs, step);
    for (const Ahead& a : ahead) {
      Seen& seen = seen_.at(a.sequence.id);
      seen.computed = std::ssize(a.sequence.tokens);
    }
    draw(ahead, hidden_TD, rows);
    for (const Ahead& a : ahead) {
      if (a.left < 0) continue;  // nothing could be drawn
      out[a.wish].push_back(a.sequence.tokens.back());
      seen_.at(a.sequence.id).tokens.push_back(a.sequence.tokens.back());
    }
    std::erase_if(ahead, [](const Ahead& a) { return a.left <= 0; });
  }
  return out;
}

// The next guess of each, or left < 0.
void DraftModel::draw(std::vector<Ahead>& ahead, const at::Tensor& hidden_TD, const std::vector<int64_t>& rows) {
  const TokenCounts none;
  std::vector<int64_t> drawn;
  std::vector<SampleRow> samples;
  for (size_t i = 0; i < ahead.size(); ++i) {
    if (ahead[i].left == 0) continue;
    drawn.push_back(rows[i]);
    samples.push_back(
        {&ahead[i].sampling, {ahead[i].sequence.tokens, ahead[i].sequence.prompt, none}, nullptr, {}, {}});
  }
  if (!drawn.empty()) {
    const at::Tensor last_RD = rows_of(hidden_TD, drawn);
    sampler_(model_.head(last_RD, Step()), samples);
  }
  size_t next = 0;
  for (Ahead& a : ahead) {
    const int32_t id = a.left > 0 ? samples[next++].out.id : -1;
    a.begin = std::ssize(a.sequence.tokens);
    a.left = id < 0 ? -1 : a.left - 1;
    if (id >= 0) a.sequence.tokens.push_back(id);
  }
}

}  // namespace apus
