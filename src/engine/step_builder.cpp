// SPDX-License-Identifier: Apache-2.0
#include "engine/step_builder.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "tensor/upload.h"

namespace apus {

namespace {
template <class T>
at::Tensor seen(std::vector<T>& values, at::ScalarType type) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::TensorOptions().dtype(type));
}
}  // namespace

template <class T>
at::Tensor StepBuilder::tensor(std::vector<T>& values, at::ScalarType type) const {
  return seen(values, type).to(device_);
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
  read(plan, cache.spec().seats > 0, adapter);
  Built built = build(numbers_, cache);
  built.inputs = inputs_of(std::move(built.inputs.id_T), plan);
  return built;
}

const StepNumbers& StepBuilder::read(const StepPlan& plan, bool seats, const std::vector<std::string>& adapter) {
  StepNumbers& n = numbers_;
  n.id.clear(), n.slot.clear(), n.seat.clear(), n.begin.clear(), n.length.clear(), n.prompt.clear();
  for (const auto& item : plan.items) {
    add_tokens(item);
    if (seats) n.seat.push_back(item.sequence->seat);
  }
  add_blocks(plan);
  n.routed = !adapter.empty(), n.routes.clear();
  if (n.routed) route(plan, adapter);
  return n;
}

void StepBuilder::add_tokens(const StepPlan::Item& item) {
  const Sequence& s = *item.sequence;
  const int64_t known = std::ssize(s.tokens);
  for (int64_t i = item.begin; i < item.begin + item.count; ++i) {
    const std::vector<int32_t>& from = i < known ? s.tokens : s.draft;
    const auto at = static_cast<size_t>(i < known ? i : i - known);
    numbers_.id.push_back(at < from.size() ? from[at] : 0);  // else nobody but the device knows it (Scheduler::ahead)
    numbers_.slot.push_back(s.blocks[static_cast<size_t>(i / block_size_)] * block_size_ + i % block_size_);
  }
  numbers_.begin.push_back(item.begin);
  numbers_.length.push_back(item.count);
  numbers_.prompt.push_back(s.read_as);
}

void StepBuilder::add_blocks(const StepPlan& plan) {
  size_t widest = 0;
  for (const auto& item : plan.items) widest = std::max(widest, item.sequence->blocks.size());
  numbers_.blocks.assign(plan.items.size() * widest, 0);
  for (size_t i = 0; i < plan.items.size(); ++i) {
    const auto& blocks = plan.items[i].sequence->blocks;
    std::copy(blocks.begin(), blocks.end(), numbers_.blocks.begin() + static_cast<std::ptrdiff_t>(i * widest));
  }
}

void StepBuilder::route(const StepPlan& plan, const std::vector<std::string>& adapter) {
  int64_t row = 0;
  for (size_t i = 0; i < plan.items.size(); ++i)
    for (int64_t n = 0; n < plan.items[i].count; ++n, ++row)
      if (!adapter[i].empty()) numbers_.routes[adapter[i]].push_back(row);
}

namespace {
void set_routes(Step& step, const AdapterRoutes& routes, at::Device device) {
  step.routed = true;
  step.adapters.clear();
  for (const auto& [name, list] : routes)
    step.adapters.push_back({name, uploaded(at::tensor(list, at::kLong), device)});
}
}  // namespace

StepBuilder::Built StepBuilder::build(StepNumbers& n, KvCache& cache) {
  Step step;
  cu_q_.assign(1, 0), cu_k_.assign(1, 0);
  for (size_t i = 0; i < n.begin.size(); ++i) {
    const int64_t end = n.begin[i] + n.length[i];
    step.begin_q.push_back(static_cast<int32_t>(n.begin[i]));
    step.length_q.push_back(static_cast<int32_t>(n.length[i]));
    step.length_k.push_back(static_cast<int32_t>(n.prompt[i]));
    cu_q_.push_back(cu_q_.back() + static_cast<int32_t>(n.length[i]));
    cu_k_.push_back(cu_k_.back() + static_cast<int32_t>(end));
    step.max_q = std::max(step.max_q, n.length[i]);
    step.max_k = std::max(step.max_k, end);
  }
  step.slot = seen(n.slot, at::kLong);
  step.cu_q = seen(cu_q_, at::kInt);
  step.cu_k = seen(cu_k_, at::kInt);
  const auto sequences = static_cast<int64_t>(n.begin.size());
  step.block_table = seen(n.blocks, at::kInt).view({sequences, sequences > 0 ? std::ssize(n.blocks) / sequences : 0});
  step.cache = &cache;
  at::Tensor id_T = seen(n.id, at::kLong);
  if (cache.spec().seats > 0) step.seat = seen(n.seat, at::kLong);
  move_together({&id_T, &step.slot, &step.cu_q, &step.cu_k, &step.block_table, &step.seat}, device_,
                {&step.slot, &step.cu_q, &step.cu_k});
  if (cache.spec().seats > 0) begin_states(n, cache);
  if (n.routed) set_routes(step, n.routes, device_);
  return {Inputs(std::move(id_T)), std::move(step)};
}

void StepBuilder::begin_states(const StepNumbers& n, KvCache& cache) const {
  std::vector<int64_t> new_ones;
  for (size_t i = 0; i < n.seat.size(); ++i)
    if (n.begin[i] == 0) new_ones.push_back(n.seat[i]);
  if (!new_ones.empty()) cache.begin(tensor(new_ones, at::kLong));
}

Step StepBuilder::select(const Step& step, const std::vector<std::string>& adapter_of_row) const {
  AdapterRoutes routes;
  for (size_t i = 0; step.routed && i < adapter_of_row.size(); ++i)
    if (!adapter_of_row[i].empty()) routes[adapter_of_row[i]].push_back(static_cast<int64_t>(i));
  return select(step.routed, routes);
}

Step StepBuilder::select(bool routed, const AdapterRoutes& routes) const {
  Step part;
  if (routed) set_routes(part, routes, device_);
  return part;
}

}  // namespace apus
