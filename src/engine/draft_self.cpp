// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_self.h"

#include <algorithm>

#include "engine/rows.h"
#include "models/layer_runner.h"

namespace apus {

namespace {
struct Skipping final : RunnerAround {
  explicit Skipping(const std::vector<int64_t>& skipped) : skipped(skipped) {}
  at::Tensor layer(const Model& model, int64_t i, const at::Tensor& x_TD, const Step& s) override {
    return std::find(skipped.begin(), skipped.end(), i) == skipped.end() ? RunnerAround::layer(model, i, x_TD, s)
                                                                         : x_TD;
  }
  const std::vector<int64_t>& skipped;
};
}  // namespace

DraftSelf::DraftSelf(const Model& model, std::vector<int64_t> skipped, at::Device device, int64_t block_size)
    : skipped_(std::move(skipped)), builder_(device, block_size) {
  const int64_t layers = model.shape().layers;
  require(std::ssize(skipped_) < layers && skipped_.back() < layers, Fault::Usage,
          "--speculative_config: \"skip_layers\" names layer ", skipped_.back(),
          " or all layers, and the model has layers 0 to ", layers - 1, ", of which one at least must be left");
}

// States are those of all layers, and stay so.
std::vector<std::vector<int32_t>> DraftSelf::operator()(const Model& model, KvCache& cache,
                                                        const std::vector<Wish>& wishes) {
  std::vector<std::pair<int64_t, std::vector<at::Tensor>>> kept;
  for (const Wish& wish : wishes)
    if (cache.spec().seats > 0 && wish.count > 0)
      kept.emplace_back(wish.sequence->seat, cache.states(wish.sequence->seat));
  auto out = Drafter::operator()(model, cache, wishes);
  for (const auto& [seat, states] : kept) cache.put_states(seat, states);
  return out;
}

std::vector<Drafter::Ahead> DraftSelf::start(const KvCache& /*cache*/, const std::vector<Wish>& wishes) {
  std::vector<Ahead> out;
  for (size_t i = 0; i < wishes.size(); ++i)
    if (wishes[i].count > 0) out.push_back(ahead_of(i, wishes[i], wishes[i].sequence->computed));
  return out;
}

at::Tensor DraftSelf::pass(const Model& model, KvCache& cache, std::vector<Ahead>& ahead) {
  StepPlan plan;
  std::vector<int64_t> rows;
  for (Ahead& a : ahead) {
    const int64_t known = std::ssize(a.sequence.tokens);
    plan.items.push_back({&a.sequence, a.begin, known - a.begin, true});
    plan.tokens += known - a.begin;
    rows.push_back(plan.tokens - 1);
    a.begin = known;
  }
  auto [inputs, step] = builder_(plan, cache, {});
  Skipping skipping(skipped_);
  return model.head(rows_of(model.forward(inputs, step, skipping), rows), Step());
}

}  // namespace apus
