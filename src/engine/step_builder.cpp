// SPDX-License-Identifier: Apache-2.0
#include "engine/step_builder.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>

namespace apus {

template <class T>
at::Tensor StepBuilder::tensor(std::vector<T>& values, at::ScalarType type) const {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(type))
      .to(device_);
}
template at::Tensor StepBuilder::tensor(std::vector<int64_t>&, at::ScalarType) const;
template at::Tensor StepBuilder::tensor(std::vector<int32_t>&, at::ScalarType) const;

namespace {
// All media of each sequence, also those that the cache holds already: what comes after them is placed by them.
Inputs inputs_of(at::Tensor id_T, const StepPlan& plan) {
  const auto has_media = [](const StepPlan::Item& item) { return !item.sequence->media.empty(); };
  if (std::none_of(plan.items.begin(), plan.items.end(), has_media)) return Inputs(std::move(id_T));
  Inputs::Media media;
  for (const auto& item : plan.items) media.push_back(item.sequence->media);
  Inputs inputs(std::move(id_T), std::move(media));
  for (const auto& item : plan.items) inputs.text.emplace_back(item.sequence->tokens);
  return inputs;
}
}  // namespace

StepBuilder::Built StepBuilder::operator()(const StepPlan& plan, KvCache& cache,
                                           const std::vector<std::string>& adapter) {
  Step step;
  id_.clear(), slot_.clear();
  cu_q_.assign(1, 0), cu_k_.assign(1, 0);
  for (const auto& item : plan.items) add_tokens(item, step);
  step.slot = tensor(slot_, at::kLong);
  step.cu_q = tensor(cu_q_, at::kInt);
  step.cu_k = tensor(cu_k_, at::kInt);
  step.block_table = block_table(plan);
  step.cache = &cache;
  if (cache.spec().seats > 0) take_seats(step, plan);
  if (!adapter.empty()) route(step, plan, adapter);
  return {inputs_of(tensor(id_, at::kLong), plan), std::move(step)};
}

void StepBuilder::add_tokens(const StepPlan::Item& item, Step& step) {
  const Sequence& s = *item.sequence;
  const int64_t end = item.begin + item.count, known = std::ssize(s.tokens);
  for (int64_t i = item.begin; i < end; ++i) {
    id_.push_back(i < known ? s.tokens[static_cast<size_t>(i)] : s.draft[static_cast<size_t>(i - known)]);
    slot_.push_back(s.blocks[static_cast<size_t>(i / block_size_)] * block_size_ + i % block_size_);
  }
  step.begin_q.push_back(static_cast<int32_t>(item.begin));
  step.length_q.push_back(static_cast<int32_t>(item.count));
  step.length_k.push_back(static_cast<int32_t>(s.prompt));
  cu_q_.push_back(cu_q_.back() + static_cast<int32_t>(item.count));
  cu_k_.push_back(cu_k_.back() + static_cast<int32_t>(end));
  step.max_q = std::max(step.max_q, item.count);
  step.max_k = std::max(step.max_k, end);
}

at::Tensor StepBuilder::block_table(const StepPlan& plan) {
  size_t widest = 0;
  for (const auto& item : plan.items) widest = std::max(widest, item.sequence->blocks.size());
  const size_t sequences = plan.items.size();
  table_.assign(sequences * widest, 0);
  for (size_t i = 0; i < sequences; ++i) {
    const auto& blocks = plan.items[i].sequence->blocks;
    std::copy(blocks.begin(), blocks.end(), table_.begin() + static_cast<std::ptrdiff_t>(i * widest));
  }
  return tensor(table_, at::kInt).view({static_cast<int64_t>(sequences), static_cast<int64_t>(widest)});
}

void StepBuilder::take_seats(Step& step, const StepPlan& plan) {
  seat_.clear();
  std::vector<int64_t> new_ones;
  for (const auto& item : plan.items) {
    seat_.push_back(item.sequence->seat);
    if (item.begin == 0) new_ones.push_back(item.sequence->seat);
  }
  step.seat = tensor(seat_, at::kLong);
  if (!new_ones.empty()) step.cache->begin(tensor(new_ones, at::kLong));
}

namespace {
void set_routes(Step& step, const std::map<std::string, std::vector<int64_t>>& rows, at::Device device) {
  step.routed = true;
  step.adapters.clear();
  for (const auto& [name, list] : rows) step.adapters.push_back({name, at::tensor(list, at::kLong).to(device)});
}
}  // namespace

void StepBuilder::route(Step& step, const StepPlan& plan, const std::vector<std::string>& adapter) {
  std::map<std::string, std::vector<int64_t>> rows;
  int64_t row = 0;
  for (size_t i = 0; i < plan.items.size(); ++i)
    for (int64_t n = 0; n < plan.items[i].count; ++n, ++row)
      if (!adapter[i].empty()) rows[adapter[i]].push_back(row);
  set_routes(step, rows, device_);
}

Step StepBuilder::select(const Step& step, const std::vector<std::string>& adapter_of_row) const {
  Step part;
  if (!step.routed) return part;
  std::map<std::string, std::vector<int64_t>> routes;
  for (size_t i = 0; i < adapter_of_row.size(); ++i)
    if (!adapter_of_row[i].empty()) routes[adapter_of_row[i]].push_back(static_cast<int64_t>(i));
  set_routes(part, routes, device_);
  return part;
}

}  // namespace apus
