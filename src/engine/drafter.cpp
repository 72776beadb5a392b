// SPDX-License-Identifier: Apache-2.0
#include "engine/drafter.h"

#include <algorithm>

namespace apus {

at::Tensor Drafter::run(const Model& model, const StepPlan& /*plan*/, const Inputs& in, Step& s) {
  return model.forward(in, s);
}

Drafter::Ahead Drafter::ahead_of(size_t wish, const Wish& of, int64_t begin) {
  Ahead ahead{wish, *of.sequence, *of.sampling, begin, of.count};
  ahead.sequence.draft.clear();
  ahead.sampling.top_logprobs = -1;
  return ahead;
}

std::vector<int64_t> Drafter::wanted(const std::vector<Ahead>& ahead, const std::vector<int64_t>& rows) {
  std::vector<int64_t> out;
  for (size_t i = 0; i < ahead.size(); ++i)
    if (ahead[i].left > 0) out.push_back(rows[i]);
  return out;
}

std::vector<std::vector<int32_t>> Drafter::operator()(const Model& model, KvCache& cache,
                                                      const std::vector<Wish>& wishes) {
  std::vector<std::vector<int32_t>> out(wishes.size());
  std::vector<Ahead> ahead = start(cache, wishes);
  while (!ahead.empty()) {
    draw(ahead, pass(model, cache, ahead));
    for (const Ahead& a : ahead)
      if (a.left >= 0) out[a.wish].push_back(a.sequence.tokens.back());
    std::erase_if(ahead, [](const Ahead& a) { return a.left <= 0; });
  }
  return out;
}

// The next guess of each, or left < 0 where none is wanted or none could be drawn.
void Drafter::draw(std::vector<Ahead>& ahead, const at::Tensor& logits_RV) {
  const TokenCounts none;
  std::vector<SampleRow> samples;
  for (const Ahead& a : ahead)
    if (a.left > 0) samples.push_back({&a.sampling, {a.sequence.tokens, a.sequence.prompt, none}, nullptr, {}, {}});
  if (!samples.empty()) sampler_(logits_RV, samples);
  size_t next = 0;
  for (Ahead& a : ahead) {
    const int32_t id = a.left > 0 ? samples[next++].out.id : -1;
    a.left = id < 0 ? -1 : a.left - 1;
    if (id >= 0) a.sequence.tokens.push_back(id);
  }
}

}  // namespace apus
