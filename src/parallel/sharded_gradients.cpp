// SPDX-License-Identifier: Apache-2.0
#include "parallel/sharded_gradients.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "base/error.h"
#include "device/agree.h"
#include "ops/ops.h"
#include "parallel/gradient_hook.h"
#include "parallel/wide_gradient.h"

namespace apus {

namespace {
constexpr size_t kUnderWay = 2;  // buckets: one travels while the next is filled
}

struct ShardedGradients::Member {
  Param param;
  size_t bucket = 0;
  bool arrived = false;  // in this backward pass
  bool used = false;     // in this update, on this rank
  std::unique_ptr<GradientHook> hook;
};

struct ShardedGradients::Bucket {
  std::vector<Member*> members;
  std::unique_ptr<SliceMessage> message;
  std::vector<at::Tensor> wholes() const {
    std::vector<at::Tensor> all;
    for (const Member* m : members) all.push_back(m->param.whole);
    return all;
  }
};

ShardedGradients::ShardedGradients(std::vector<Param> params, Comm& ranks, Comm& host, Spec spec)
    : ranks_(ranks), host_(host), spec_(spec) {
  int64_t bytes = 0;
  for (Param& p : params) {
    const auto size = p.whole.numel() * static_cast<int64_t>(p.whole.element_size());
    const Member* before = buckets_.empty() ? nullptr : buckets_.back().members.back();
    const bool alike = before && before->param.unit == p.unit && before->param.copies == p.copies &&
                       before->param.whole.scalar_type() == p.whole.scalar_type() &&
                       before->param.whole.device() == p.whole.device();
    if (!alike || bytes + size > spec_.bucket_bytes) buckets_.emplace_back(), bytes = 0;
    bytes += size;
    Member& m = *members_.emplace_back(std::make_unique<Member>());
    m.param = std::move(p), m.bucket = buckets_.size() - 1;
    buckets_.back().members.push_back(&m);
    if (!spec_.by_unit) m.hook = std::make_unique<GradientHook>(m.param.whole, [this, &m] { arrived(m); });
  }
  for (Bucket& b : buckets_) {
    std::vector<std::vector<int64_t>> shapes;
    std::vector<int> owners;
    for (const Member* m : b.members) {
      shapes.push_back(m->param.whole.sizes().vec());
      if (m->param.owner >= 0) owners.push_back(m->param.owner);
    }
    b.message = std::make_unique<SliceMessage>(ranks_, std::move(shapes), b.members[0]->param.whole.detach().options(),
                                               sum_type(b.members[0]->param.whole, spec_.wide), std::move(owners));
  }
}

ShardedGradients::~ShardedGradients() = default;

size_t ShardedGradients::buckets() const { return buckets_.size(); }

void ShardedGradients::begin(bool last) {
  armed_ = spec_.each_micro_batch || last;
  next_ = 0, sent_early_ = 0;
  for (const auto& m : members_) m->arrived = false;
  if (!std::exchange(open_, true))
    for (const auto& m : members_) m->used = false;
}

void ShardedGradients::arrived(Member& m) {
  if (!armed_) return;
  m.arrived = true;
  const auto complete = [](const Member* of) { return of->arrived; };
  while (next_ < buckets_.size() && m.bucket >= next_ &&
         std::all_of(buckets_[next_].members.begin(), buckets_[next_].members.end(), complete))
    send(next_++), ++sent_early_;
}

void ShardedGradients::complete(int unit) {
  if (!armed_) return;
  while (next_ < buckets_.size() && buckets_[next_].members[0]->param.unit <= unit) send(next_++), ++sent_early_;
}

void ShardedGradients::send(size_t number) {
  Bucket& b = buckets_[number];
  if (under_way_.size() >= kUnderWay) absorb_oldest();
  int64_t there = 0;
  for (const auto& m : members_)
    if (const at::Tensor& grad = m->param.whole.grad(); grad.defined())
      there += grad.numel() * static_cast<int64_t>(grad.element_size());
  most_whole_bytes_ = std::max(most_whole_bytes_, there);
  std::vector<at::Tensor> grads;
  for (Member* m : b.members) {
    grads.push_back(m->param.whole.grad());
    m->used |= grads.back().defined();
    m->param.whole.mutable_grad().reset();
  }
  under_way_.push_back({number, b.message->start_sum(grads)});
}

void ShardedGradients::absorb_oldest() {
  at::NoGradGuard no_grad;
  Sum sum = std::move(under_way_.front());
  under_way_.pop_front();
  const Bucket& b = buckets_[sum.bucket];
  const at::Tensor segment = sum.pending.segment;
  const std::vector<at::Tensor> slices = b.message->end_sum(sum.pending);  // views of it
  if (Comm* const copies = b.members[0]->param.copies) copies->all_reduce(segment)->wait();
  for (size_t i = 0; i < slices.size(); ++i) {
    const at::Tensor& slice = b.members[i]->param.slice;
    const at::Tensor here = slices[i].to(slice.device());
    at::Tensor& grad = slice.mutable_grad();
    if (grad.defined())
      grad.add_(here);
    else
      grad = here;
  }
}

// A part of a gradient that comes when its bucket has left waits for another round of that bucket, in which all ranks
// take part.
void ShardedGradients::finish(bool last) {
  if (!open_) begin(last);
  if (!armed_ && spec_.wide)
    for (const auto& m : members_) widen_gradient(m->param.whole);
  if (!armed_) return;
  while (next_ < buckets_.size()) send(next_++);
  const auto many = static_cast<int64_t>(buckets_.size());
  at::Tensor flags = at::zeros({many + static_cast<int64_t>(members_.size())}, at::kFloat);
  float* flag = flags.data_ptr<float>();
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& m = *members_[i];
    const bool late = m.param.whole.grad().defined();
    if (late) flag[m.bucket] = 1;
    flag[static_cast<size_t>(many) + i] = m.used || late;
  }
  host_.all_reduce(flags, Reduce::Sum)->wait();
  for (size_t b = 0; b < buckets_.size(); ++b)
    if (flag[b] > 0) send(b);
  while (!under_way_.empty()) absorb_oldest();
  armed_ = false;
  if (!last) return;
  for (size_t i = 0; i < members_.size(); ++i)
    if (flag[static_cast<size_t>(many) + i] == 0) members_[i]->param.slice.mutable_grad().reset();
  open_ = false;
}

// Each number counts once, however many ranks hold it.
double ShardedGradients::of_all(double squares) {
  const bool copied =
      std::any_of(members_.begin(), members_.end(), [](const auto& m) { return m->param.copies != nullptr; });
  if (!copied) return sum_over(host_, squares);
  double sum = 0;
  for (const Bucket& b : buckets_) {
    std::vector<at::Tensor> gradients;
    for (const Member* m : b.members)
      if (m->param.slice.grad().defined()) gradients.push_back(m->param.slice.grad());
    const Comm* const copies = b.members[0]->param.copies;
    sum += ops::sum_of_squares(gradients) / (copies ? copies->size() : 1);
  }
  return sum_over(host_, sum);
}

void ShardedGradients::rest() {
  if (spec_.let_go) spec_.let_go();
}

void ShardedGradients::updated() {
  at::NoGradGuard no_grad;
  if (spec_.let_go) return;
  std::deque<Sum> gathers;
  const auto end = [&] {
    const Bucket& b = buckets_[gathers.front().bucket];
    b.message->end_gather(gathers.front().pending, b.wholes());
    gathers.pop_front();
  };
  for (size_t i = 0; i < buckets_.size(); ++i) {
    if (gathers.size() >= kUnderWay) end();
    std::vector<at::Tensor> slices;
    for (const Member* m : buckets_[i].members) slices.push_back(m->param.slice);
    gathers.push_back({i, buckets_[i].message->start_gather(slices, buckets_[i].wholes())});
  }
  while (!gathers.empty()) end();
}

std::vector<ShardedGradients::Param> sliced_params(const std::vector<std::pair<std::string, at::Tensor>>& wholes,
                                                   const Comm& ranks, bool on_host, bool owned) {
  std::vector<ShardedGradients::Param> all;
  std::vector<int64_t> numbers;
  for (auto p = wholes.rbegin(); p != wholes.rend(); ++p) numbers.push_back(p->second.numel());
  const std::vector<int> owners = owned ? owners_of(numbers, ranks.size()) : std::vector<int>(wholes.size(), -1);
  // The backward pass meets them roughly in reverse.
  for (auto p = wholes.rbegin(); p != wholes.rend(); ++p) {
    const int owner = owners[all.size()];
    const at::Tensor whole = p->second.detach(), slice = owner < 0 ? rows_of(whole, ranks.rank(), ranks.size())
                                                         : owner == ranks.rank() ? whole
                                                                                 : whole.narrow(0, 0, 0);
    all.push_back({.name = p->first,
                   .whole = p->second,
                   .slice = on_host ? slice.to(at::kCPU, /*copy=*/true) : slice,
                   .owner = owner});
  }
  return all;
}

}  // namespace apus
